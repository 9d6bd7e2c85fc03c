"""How long an example takes is no rule here: a busy machine takes more than the 200 ms that Hypothesis allows."""

from hypothesis import settings

settings.register_profile("inkgrove", deadline=None)
settings.load_profile("inkgrove")
