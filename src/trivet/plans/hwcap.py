"""CPU features of 64-bit Arm, from the words that the kernel gives to every process.

Bit positions: Linux ``arch/arm64/include/uapi/asm/hwcap.h``, the kernel's stable interface.
"""

# ruff: noqa: SIM905 (one word a line would hide the order, which is the meaning)

from __future__ import annotations

import ctypes

_AT_HWCAP = 16
_AT_HWCAP2 = 26
_PR_SVE_GET_VL = 51
_PR_SVE_VL_LEN_MASK = 0xFFFF

_HWCAP = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg"
).split()
_HWCAP2 = (
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm "
    "svebf16 i8mm bf16 dgh rng bti mte ecv afp rpres mte3 sme sme_i16i64 sme_f64f64 sme_i8i32 "
    "sme_f16f32 sme_b16f32 sme_f32f32 sme_fa64 wfxt ebf16 sve_ebf16 cssc rprfm sve2p1 sme2 sme2p1"
).split()
# System management, mitigations and timers: no compiled kernel depends on them.
_NEUTRAL = frozenset(
    "evtstrm cpuid dcpop dcpodp dit ssbs sb paca pacg dgh bti mte mte3 ecv wfxt".split()
)


def arm_features() -> tuple[str, ...]:
    """Sorted names of the usable features. Raises `OSError` when they can't be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.getauxval.argtypes = (ctypes.c_ulong,)
    libc.getauxval.restype = ctypes.c_ulong
    hwcap, hwcap2 = libc.getauxval(_AT_HWCAP), libc.getauxval(_AT_HWCAP2)
    if hwcap == 0:
        raise OSError(ctypes.get_errno(), "the kernel names no CPU features")
    sve_bytes = 0
    if hwcap >> _HWCAP.index("sve") & 1:
        sve_bytes = libc.prctl(_PR_SVE_GET_VL, 0, 0, 0, 0)
        if sve_bytes < 0:
            raise OSError(ctypes.get_errno(), "the length of SVE vectors can't be read")
    return decode(hwcap, hwcap2, sve_bytes & _PR_SVE_VL_LEN_MASK)


def decode(hwcap: int, hwcap2: int, sve_bytes: int) -> tuple[str, ...]:
    """Sorted feature names; the length of SVE vectors, in bytes, is one of them.

    A bit that has no name here counts by its position.
    """
    found = set()
    for label, word, names in (("hwcap", hwcap, _HWCAP), ("hwcap2", hwcap2, _HWCAP2)):
        for bit in range(64):
            if word >> bit & 1:
                found.add(names[bit] if bit < len(names) else f"{label}_{bit}")
    if sve_bytes:
        found.add(f"sve_bytes_{sve_bytes}")
    return tuple(sorted(found - _NEUTRAL))
