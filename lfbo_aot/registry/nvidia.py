"""NVIDIA's products of sm80 to sm121 by the names that its drivers report.

Names: the list of supported products of the open kernel modules (release 595), and for the Jetson
family what `deviceQuery` prints there. Multiprocessors, memory and L2: data sheets, architecture
white papers and tuning guides, `deviceQuery` and torch on the device. Laptop and embedded parts
are left out, and so are those that come with different memory under one name, such as
`NVIDIA GeForce RTX 4060 Ti`: each of these is a device of its own by its properties.
"""

from __future__ import annotations

from lfbo_aot.registry.product import Product


def _before_2021(product: Product) -> Product:
    """`product`, which drivers older than release 470 report without the vendor's name."""
    old = product.name.removeprefix("NVIDIA ")
    return product._replace(aliases=(*product.aliases, old))


_AMPERE = (
    Product("sm80", "NVIDIA A100-SXM4-80GB", 108, 80, 40),
    Product("sm80", "NVIDIA A100-SXM4-40GB", 108, 40, 40),
    Product("sm80", "NVIDIA A100 80GB PCIe", 108, 80, 40),
    Product("sm80", "NVIDIA A100-PCIE-40GB", 108, 40, 40),
    Product("sm80", "NVIDIA A30", 56, 24, 24),
    Product("sm86", "NVIDIA A40", 84, 48, 6),
    Product("sm86", "NVIDIA A10", 72, 24, 6),
    Product("sm86", "NVIDIA RTX A6000", 84, 48, 6),
    Product("sm86", "NVIDIA RTX A5000", 64, 24, 6),
    Product("sm86", "NVIDIA RTX A4000", 48, 16, 4),
    Product("sm86", "NVIDIA GeForce RTX 3090", 82, 24, 6),
    Product("sm86", "NVIDIA GeForce RTX 3080", 68, 10, 5),
    Product("sm86", "NVIDIA GeForce RTX 3070", 46, 8, 4),
    Product("sm86", "NVIDIA GeForce RTX 3060", 28, 12, 3),
)

PRODUCTS: tuple[Product, ...] = (
    *map(_before_2021, _AMPERE),
    # Ampere, data centre
    Product("sm80", "NVIDIA A100-SXM-64GB", None, 64),
    Product("sm80", "NVIDIA A800-SXM4-80GB", 108, 80, 40),
    Product("sm80", "NVIDIA A800-SXM4-40GB", 108, 40, 40),
    Product("sm80", "NVIDIA A800 80GB PCIe", 108, 80, 40),
    Product("sm80", "NVIDIA A800 40GB Active", 108, 40, 40),
    Product("sm86", "NVIDIA A10G", 80, 24, 6),
    Product("sm86", "NVIDIA A10M", None, 20),
    Product("sm86", "NVIDIA A16", 10, 16),
    Product("sm86", "NVIDIA A2", 10, 16),
    # Ampere, workstation and consumer
    Product("sm86", "NVIDIA RTX A5500", 80, 24, 6),
    Product("sm86", "NVIDIA RTX A4500", 56, 20, 6),
    Product("sm86", "NVIDIA RTX A2000", 26, 6, 3),
    Product("sm86", "NVIDIA RTX A2000 12GB", 26, 12, 3),
    Product("sm86", "NVIDIA GeForce RTX 3090 Ti", 84, 24, 6),
    Product("sm86", "NVIDIA GeForce RTX 3080 Ti", 80, 12, 6),
    Product("sm86", "NVIDIA GeForce RTX 3070 Ti", 48, 8, 4),
    Product("sm86", "NVIDIA GeForce RTX 3060 Ti", 38, 8, 4),
    # Jetson AGX Orin; the Orin NX and Nano have its name with 8 multiprocessors or less memory.
    Product("sm87", "Orin", 16, 64, 4),
    # Ada, data centre
    Product("sm89", "NVIDIA L40S", 142, 48, 96),
    Product("sm89", "NVIDIA L40", 142, 48, 96),
    Product("sm89", "NVIDIA L20", 92, 48),
    Product("sm89", "NVIDIA L4", 58, 24, 48),
    Product("sm89", "NVIDIA L2", None, 24),
    # Ada, workstation and consumer
    Product("sm89", "NVIDIA RTX 6000 Ada Generation", 142, 48, 96),
    Product("sm89", "NVIDIA RTX 5880 Ada Generation", 110, 48),
    Product("sm89", "NVIDIA RTX 5000 Ada Generation", 100, 32),
    Product("sm89", "NVIDIA RTX 4500 Ada Generation", 60, 24),
    Product("sm89", "NVIDIA RTX 4000 Ada Generation", 48, 20),
    Product("sm89", "NVIDIA RTX 4000 SFF Ada Generation", 48, 20),
    Product("sm89", "NVIDIA RTX 2000 Ada Generation", 22, 16),
    Product("sm89", "NVIDIA GeForce RTX 4090", 128, 24, 72),
    Product("sm89", "NVIDIA GeForce RTX 4090 D", 114, 24, 72),
    Product("sm89", "NVIDIA GeForce RTX 4080 SUPER", 80, 16, 64),
    Product("sm89", "NVIDIA GeForce RTX 4080", 76, 16, 64),
    Product("sm89", "NVIDIA GeForce RTX 4070 Ti SUPER", 66, 16),
    Product("sm89", "NVIDIA GeForce RTX 4070 Ti", 60, 12, 48),
    Product("sm89", "NVIDIA GeForce RTX 4070 SUPER", 56, 12, 48),
    Product("sm89", "NVIDIA GeForce RTX 4070", 46, 12, 36),
    Product("sm89", "NVIDIA GeForce RTX 4060", 24, 8, 24),
    # Hopper
    Product("sm90", "NVIDIA H200", 132, 141, 60),
    Product("sm90", "NVIDIA H200 NVL", 132, 141, 60),
    Product(
        "sm90",
        "NVIDIA H100 80GB HBM3",
        132,
        80,
        50,
        # What older drivers and other tools' tables say. A driver also reports plain "NVIDIA H100"
        # for a part with 94 GiB: its memory tells it apart.
        ("NVIDIA H100", "NVIDIA H100 SXM5 80GB", "H100 80GB HBM3"),
    ),
    Product("sm90", "NVIDIA H100 PCIe", 114, 80, 50, ("H100 PCIe",)),
    Product("sm90", "NVIDIA H100 NVL", 132, 94, 60),
    Product("sm90", "NVIDIA H800", 132, 80, 50),
    Product("sm90", "NVIDIA H800 PCIe", 114, 80, 50),
    Product("sm90", "NVIDIA H800 NVL", None, 94),
    Product("sm90", "NVIDIA H20", 78, 96, 60),
    Product("sm90", "NVIDIA H20-3e", 78, 141, 60),
    Product("sm90", "NVIDIA H20 NVL16"),
    Product("sm90", "NVIDIA GH200 480GB", 132, 96),
    Product("sm90", "NVIDIA GH200 120GB", 132, 96),
    Product("sm90", "NVIDIA GH200 144G HBM3e", 132, 144),
    # Blackwell, data centre
    Product("sm100", "NVIDIA B200", 148, 180, 126),
    Product("sm100", "NVIDIA GB200", None, 186),
    Product("sm103", "NVIDIA B300 SXM6 AC", None, 288),
    Product("sm103", "NVIDIA GB300", None, 288),
    # Jetson AGX Thor, and the DGX Spark
    Product("sm110", "NVIDIA Thor", 20, 128, 32),
    Product("sm121", "NVIDIA GB10", 48, 128),
    # Blackwell, workstation and consumer
    Product("sm120", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, 96, 128),
    Product("sm120", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, 96, 128),
    Product("sm120", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 188, 96, 128),
    Product("sm120", "NVIDIA RTX PRO 5000 Blackwell", 110, 48),
    Product("sm120", "NVIDIA RTX PRO 5000 72GB Blackwell", None, 72),
    Product("sm120", "NVIDIA RTX PRO 4500 Blackwell", 82, 32),
    Product("sm120", "NVIDIA RTX PRO 4000 Blackwell", 70, 24),
    Product("sm120", "NVIDIA RTX PRO 2000 Blackwell", 34, 16),
    Product("sm120", "NVIDIA RTX 6000D"),
    Product("sm120", "NVIDIA GeForce RTX 5090", 170, 32, 96),
    Product("sm120", "NVIDIA GeForce RTX 5090 D", 170, 32, 96),
    Product("sm120", "NVIDIA GeForce RTX 5090 D v2", 170, 24),
    Product("sm120", "NVIDIA GeForce RTX 5080", 84, 16, 64),
    Product("sm120", "NVIDIA GeForce RTX 5070 Ti", 70, 16, 48),
    Product("sm120", "NVIDIA GeForce RTX 5070", 48, 12, 48),
    Product("sm120", "NVIDIA GeForce RTX 5060", 30, 8),
)
