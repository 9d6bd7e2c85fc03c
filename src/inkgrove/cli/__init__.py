"""The `inkgrove` command, one file per group."""

import gc

# Loading makes hundreds of thousands of objects and hardly any garbage; looking for it took a tenth of the time.
gc.set_threshold(50_000, 20, 50)
