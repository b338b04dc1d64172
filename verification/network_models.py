"""Networks that Nadi generates work of, against what was published and recorded.

Usage: python verification/network_models.py [PART ...]

Parts, all by default:

``parameters``
    The number of parameters of every network that ships with Nadi, from its layers alone, equals
    the published one: exactly, but for the DLRM of Kaggle, whose paper rounds it. Nobody counts
    those of MLPerf's DLRM, which follow from the tables on its command line; it is shown only.
``products``
    So do the multiplications and additions of the forward of a sample, within the digits that the
    source gives; the U-Net's are given exactly.
``collectives``
    Bytes of collectives of all stages of ZeRO equal closed forms, and tables are all placed.
``recording``
    ResNet-50 as PyTorch recorded it on two GPUs: the same operators in the same order, with the
    same shapes, FLOPs and bytes of gradients, and the same collectives.
"""

from __future__ import annotations

from collections.abc import Callable

from _report import Checks, run_parts
from _resnet_recording import recording

import nadi

_PRODUCTS = ("conv", "gemm", "attention")
_RANKS, _BATCH = 8, 4


def parameters(checks: Checks) -> None:
    """Compare each network's parameters with the published count."""
    for name in nadi.models.shipped_networks():
        network = nadi.models.load_network(name)
        stated, found = network.published, network.total_parameters
        if stated is None or not stated.parameters:
            print(f"     parameters of {name}: {found:,}, not published")
            continue
        close = abs(found - stated.parameters) <= stated.tolerance
        source = "exact" if not stated.tolerance else f"for {stated.parameters:,}, rounded"
        checks.add(f"parameters of {name}", close, f"{found:,}, {source}")
    # its first and last layers are those of MobileNetV2, of which torchvision counts 3,504,872:
    # without the classifier of 1,000 classes, the last convolution and its norm
    mobile = nadi.models.load_network("mask-rcnn-mobile")
    parts = ("trunk.", "box.0.", "box.1.", "box.2.", "box.3.")
    found = sum(layer.parameters for layer in mobile.layers if layer.name.startswith(parts))
    expected = 3_504_872 - 1281 * 1000 - 1280 * 320 - 2 * 1280
    checks.add("MobileNetV2 in mask-rcnn-mobile", found == expected, f"{found:,}, exact")


def products(checks: Checks) -> None:
    """Compare multiplications and additions of a sample with the published numbers."""
    for name in nadi.models.shipped_networks():
        network = nadi.models.load_network(name)
        stated = network.published
        if stated is None or not stated.macs:
            continue
        layers = nadi.models.network_statistics(network).layers
        found = int(layers["macs"].sum())
        if not stated.macs_attention:
            found -= int(layers.filter(layers["kind"] == "attention")["macs"].sum())
        norms = (one for one in network.layers if getattr(one.kind, "of", "") == "layer")
        found += stated.macs_layer_norm * sum(one.output.elements for one in norms)
        close = abs(found - stated.macs) <= stated.macs_tolerance
        source = "exact" if not stated.macs_tolerance else f"for {stated.macs / 1e9:.2f} G"
        checks.add(f"products of {name}", close, f"{found:,}, {source}")


def collectives(checks: Checks) -> None:
    """Compare the bytes of a rank's collectives with closed forms, for each stage of ZeRO."""
    for name in nadi.models.shipped_networks():
        network = nadi.models.load_network(name)
        dense = sum(sum(layer.tensors) for layer in network.layers if not layer.is_spread)
        held = 0
        for zero in range(4):
            found = nadi.models.network_statistics(
                network, ranks=_RANKS, batch=_BATCH, zero=zero, bucket=1 << 20
            )
            sent = found.communication.filter(
                (found.communication["kind"] == 0) & (found.communication["role"] == "dp")
            )
            bytes_of = dict(zip(sent["type"], sent["bytes"], strict=True))
            bytes_of.pop("broadcast", None)
            gathered = {0: 0, 1: 1, 2: 1, 3: 2}[zero] * 2 * dense
            reduced = bytes_of.pop("all_reduce" if zero == 0 else "reduce_scatter", 0)
            # a part of each of two buckets is rounded up
            rounded = 0 <= bytes_of.get("all_gather", 0) * _RANKS - gathered < 4 * _RANKS
            held += reduced == 4 * dense and rounded
        checks.add_many(f"gradients and weights of {name}", held, 4, f"{dense:,} parameters")
    for name in ("dlrm-dcnv2", "dlrm-kaggle"):
        network = nadi.models.load_network(name)
        found = nadi.models.network_statistics(network, ranks=_RANKS, batch=_BATCH)
        tables = network.layers[0].kind
        of_rows = 4 * sum(tables.rows)  # a float32 of the optimizer for each row
        placed = found.memory["tables"].to_list()
        total = sum(placed[kind] for kind in found.kinds.tolist())
        whole = 2 * network.table_parameters + of_rows
        checks.add(f"tables of {name} on {_RANKS} ranks", total == whole, f"{total:,} bytes")


PARTS: dict[str, Callable[[Checks], None]] = {
    "parameters": parameters,
    "products": products,
    "collectives": collectives,
    "recording": recording,
}


if __name__ == "__main__":
    run_parts(PARTS)
