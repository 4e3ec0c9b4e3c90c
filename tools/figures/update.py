"""What boots behind a cut at each operation of an update, without the defence and with it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import matplotlib as mpl
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from npufw.flash.nor import Cut, FlashModel, NorFlash, PowerCut
from npufw.flash.slots import Verifier
from npufw.flash.update import boot_device
from npufw.gates.update import in_place
from tools.campaigns.ota_harness import bench, cut_update, operations_of_update, verifier

__all__ = ["draw"]

_MODEL = FlashModel(write_unit=64)
_DESCRIPTORS = 64
_WORDS = ("old model", "new model", "nothing")
_COLOURS = ("tab:blue", "tab:green", "tab:red")


def _two_slots(looker: Verifier) -> list[int]:
    rig, found = bench(_DESCRIPTORS, _MODEL), []
    for operation in range(1, len(operations_of_update(_DESCRIPTORS, _MODEL)) + 1):
        device = cut_update(rig, Cut(operation), looker)
        found.append(int(boot_device(device, looker).blob == rig.new))
    return found


def _one_slot() -> list[int]:
    rig, found = bench(_DESCRIPTORS, _MODEL), []
    start = NorFlash.blank(len(rig.old), _MODEL)
    start.program(0, rig.old)
    whole = start.reboot()
    in_place(whole, rig.new)
    for operation in range(1, whole.operations + 1):
        flash = start.reboot()
        flash.cut = Cut(operation)
        with suppress(PowerCut):
            in_place(flash, rig.new)
        raw = flash.data.tobytes()
        found.append(0 if raw == rig.old else 1 if raw == rig.new else 2)
    return found


def draw(path: Path) -> None:
    """Write the figure."""
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    rows = {"one slot, written in place": _one_slot(), "two slots": _two_slots(verifier())}
    for axes, (name, found) in zip(figure.subplots(2, 1), rows.items(), strict=True):
        axes.imshow(
            [found], aspect="auto", cmap=ListedColormap(_COLOURS), vmin=-0.5, vmax=2.5,
            extent=(0.5, len(found) + 0.5, 0, 1), interpolation="nearest",
        )  # fmt: skip
        axes.set_yticks([])
        axes.set_title(f"{name}: {len(found)} operations", loc="left", fontsize=9)
    axes.set_xlabel("operation in which power is cut (an erase, or 64 bytes)")
    handles = [Patch(color=c, label=w) for c, w in zip(_COLOURS, _WORDS, strict=True)]
    figure.legend(handles=handles, ncols=3, fontsize=8, loc="outside upper right")
    with mpl.rc_context({"svg.hashsalt": "npu", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
