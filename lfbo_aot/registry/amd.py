"""AMD's Instinct products of gfx90a, gfx942 and gfx950 by the names that its drivers report.

Names: libdrm's list of products (amdgpu.ids) and what rocminfo prints. Compute units, memory, L2:
data sheets, rocminfo and torch on the device; they are those of what the driver shows as one
device, which is one die of an MI250X or MI250, and L2 is that of one compute die. A part that is
split into partitions keeps its name, and shows fewer compute units or less memory.
"""

from __future__ import annotations

from lfbo_aot.registry.product import Product

# One name for two products; the compute units tell which it is.
_EITHER_MI250 = ("AMD Instinct MI250X / MI250", "AMD Instinct MI250X/MI250")


def _with_vf(product: Product) -> Product:
    """`product`, whose name ends in VF where the whole of it is handed to a virtual machine."""
    return product._replace(aliases=(*product.aliases, f"{product.name} VF"))


PRODUCTS: tuple[Product, ...] = (
    Product("gfx90a", "AMD Instinct MI250X", 110, 64, 8, _EITHER_MI250),
    Product("gfx90a", "AMD Instinct MI250", 104, 64, 8, _EITHER_MI250),
    Product("gfx90a", "AMD Instinct MI210", 104, 64, 8),
    _with_vf(Product("gfx942", "AMD Instinct MI300X", 304, 192, 4)),
    Product("gfx942", "AMD Instinct MI300X HF"),
    Product("gfx942", "AMD Instinct MI300A", 228, 128, 4),
    _with_vf(Product("gfx942", "AMD Instinct MI325X", 304, 256, 4)),
    Product("gfx942", "AMD Instinct MI308X", 80, 192, 4),
    Product("gfx942", "AMD Instinct MI308X HF"),
    _with_vf(Product("gfx950", "AMD Instinct MI350X", 256, 288, 4)),
    _with_vf(Product("gfx950", "AMD Instinct MI355X", 256, 288, 4)),
)
