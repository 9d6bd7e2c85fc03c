"""The fungi by name, as policies call them."""

from typing import Final

from inkgrove.pipeline.rot.copies import Fungus
from inkgrove.pipeline.rot.fungi.anterograde import anterograde
from inkgrove.pipeline.rot.fungi.area import area
from inkgrove.pipeline.rot.fungi.egi import egi
from inkgrove.pipeline.rot.fungi.fifo import fifo
from inkgrove.pipeline.rot.fungi.overexposed import overexposed
from inkgrove.pipeline.rot.fungi.rot import rot
from inkgrove.pipeline.rot.fungi.stratified import stratified
from inkgrove.pipeline.rot.fungi.uniform import uniform

FUNGI: Final[dict[str, Fungus]] = {
    "fifo": fifo,
    "uniform": uniform,
    "anterograde": anterograde,
    "area": area,
    "egi": egi,
    "rot": rot,
    "overexposed": overexposed,
    "stratified": stratified,
}
