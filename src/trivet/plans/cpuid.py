"""CPU features of x86-64 from the CPUID instruction, as far as the operating system allows them.

The instruction is what frameworks ask, so an emulated CPU is seen as what it emulates, which
``/proc/cpuinfo`` and the model name are not. Two sources give the same words:

1. glibc 2.33 and later keeps the answers and hands them out.
2. Where it does not (older glibc, musl, or features masked by GLIBC_TUNABLES, which frameworks
   do not heed), the instruction itself is run from a page of memory made executable for the
   purpose. Systems that forbid such pages leave the features unknown.

NumPy's own table is no third source: it leaves out AMX and AVX-VNNI, so two unlike machines would
look alike. Bit positions: Intel SDM volume 2A "CPUID", AMD APM volume 3 appendix E.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from typing import TypeAlias

Word: TypeAlias = tuple[int, int, str]  # leaf, subleaf, register
Words: TypeAlias = Mapping[Word, int]

_REGISTERS = ("eax", "ebx", "ecx", "edx")

# State components that the operating system must save for a feature to be usable (XCR0 bits).
_YMM = 1 << 2
_ZMM = 0b111 << 5
_TILE = 0b11 << 17
_APX = 1 << 19

# word -> bit -> (name, state that must be enabled)
_FEATURES: Mapping[Word, Mapping[int, tuple[str, int]]] = {
    (1, 0, "ecx"): {
        0: ("sse3", 0),
        1: ("pclmulqdq", 0),
        9: ("ssse3", 0),
        12: ("fma", _YMM),
        13: ("cx16", 0),
        19: ("sse4_1", 0),
        20: ("sse4_2", 0),
        22: ("movbe", 0),
        23: ("popcnt", 0),
        25: ("aes", 0),
        28: ("avx", _YMM),
        29: ("f16c", _YMM),
        30: ("rdrand", 0),
    },
    (7, 0, "ebx"): {
        3: ("bmi1", 0),
        5: ("avx2", _YMM),
        8: ("bmi2", 0),
        16: ("avx512f", _ZMM),
        17: ("avx512dq", _ZMM),
        18: ("rdseed", 0),
        19: ("adx", 0),
        21: ("avx512_ifma", _ZMM),
        23: ("clflushopt", 0),
        24: ("clwb", 0),
        26: ("avx512pf", _ZMM),
        27: ("avx512er", _ZMM),
        28: ("avx512cd", _ZMM),
        29: ("sha_ni", 0),
        30: ("avx512bw", _ZMM),
        31: ("avx512vl", _ZMM),
    },
    (7, 0, "ecx"): {
        0: ("prefetchwt1", 0),
        1: ("avx512_vbmi", _ZMM),
        6: ("avx512_vbmi2", _ZMM),
        8: ("gfni", 0),
        9: ("vaes", _YMM),
        10: ("vpclmulqdq", _YMM),
        11: ("avx512_vnni", _ZMM),
        12: ("avx512_bitalg", _ZMM),
        14: ("avx512_vpopcntdq", _ZMM),
        25: ("cldemote", 0),
        27: ("movdiri", 0),
        28: ("movdir64b", 0),
    },
    (7, 0, "edx"): {
        2: ("avx512_4vnniw", _ZMM),
        3: ("avx512_4fmaps", _ZMM),
        8: ("avx512_vp2intersect", _ZMM),
        22: ("amx_bf16", _TILE),
        23: ("avx512_fp16", _ZMM),
        24: ("amx_tile", _TILE),
        25: ("amx_int8", _TILE),
    },
    (7, 1, "eax"): {
        0: ("sha512", _YMM),
        1: ("sm3", _YMM),
        2: ("sm4", _YMM),
        4: ("avx_vnni", _YMM),
        5: ("avx512_bf16", _ZMM),
        21: ("amx_fp16", _TILE),
        23: ("avx_ifma", _YMM),
    },
    (7, 1, "edx"): {
        4: ("avx_vnni_int8", _YMM),
        5: ("avx_ne_convert", _YMM),
        8: ("amx_complex", _TILE),
        10: ("avx_vnni_int16", _YMM),
        14: ("prefetchi", 0),
        21: ("apx_f", _APX),
    },
    (0x80000001, 0, "ecx"): {
        5: ("lzcnt", 0),
        6: ("sse4a", 0),
        11: ("xop", _YMM),
        16: ("fma4", _YMM),
        21: ("tbm", 0),
    },
}

# Bits of the same words that no compiled code depends on: system management, virtualisation,
# mitigations, and hints that change speed but not which instructions exist. Transactional memory
# (hle, rtm) comes and goes with microcode updates. A bit in neither table is a feature without a
# name: it counts, by its position.
_NEUTRAL: Mapping[Word, frozenset[int]] = {
    (1, 0, "ecx"): frozenset({2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 17, 18, 21, 24, 26, 27, 31}),
    (7, 0, "ebx"): frozenset({0, 1, 2, 4, 6, 7, 9, 10, 11, 12, 13, 14, 15, 20, 22, 25}),
    (7, 0, "ecx"): frozenset(
        {2, 3, 4, 5, 7, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 29, 30, 31}
    ),
    (7, 0, "edx"): frozenset(
        {0, 1, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}
        | {26, 27, 28, 29, 30, 31}
    ),
    (7, 1, "eax"): frozenset({3, 6, 7, 8, 9, 10, 11, 12, 17, 18, 19, 20, 22, 26, 27, 30, 31}),
    (7, 1, "edx"): frozenset({13, 15, 17, 18, 20, 22, 23, 24}),
    (0x80000001, 0, "ecx"): frozenset(
        {0, 1, 2, 3, 4, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 19, 20, 22, 23, 24, 25, 26, 27, 28}
        | {29, 30, 31}
    ),
}

_OSXSAVE = (1, 0, "ecx"), 27
_AVX10 = (7, 1, "edx"), 19
_AVX10_VERSION: Word = (0x24, 0, "ebx")


def x86_features(glibc_tunables: str = "") -> tuple[str, ...]:
    """Sorted names of the usable features; ``glibc_tunables`` is the variable's value.

    Raises `OSError` when neither source can be read.
    """
    if "hwcaps" not in glibc_tunables:
        try:
            words, state = _from_glibc()
        except AttributeError:
            pass  # older than 2.33, or another C library
        else:
            if not _has(words, _AVX10):  # glibc doesn't tell which version of it
                return decode(words, state)
    return decode(*_from_instruction())


def decode(words: Words, state: int) -> tuple[str, ...]:
    """Sorted feature names from CPUID's ``words``; ``state`` is XCR0."""
    found = {"sse2"}  # part of x86-64 itself; keeps the result from being empty
    for word, named in _FEATURES.items():
        for bit in range(32):
            if not words[word] >> bit & 1 or bit in _NEUTRAL[word]:
                continue
            if (word, bit) == _AVX10:
                if state & _ZMM == _ZMM:  # each version contains those before it
                    version = max(words[_AVX10_VERSION] & 0xFF, 1)
                    found.update(f"avx10_{each}" for each in range(1, version + 1))
                continue
            name, needs = named.get(bit, (_position(word, bit), 0))
            if state & needs == needs:
                found.add(name)
    return tuple(sorted(found))


def _position(word: Word, bit: int) -> str:
    leaf, subleaf, register = word
    return f"cpuid_{leaf:x}_{subleaf}_{register}_{bit}"


def _has(words: Words, feature: tuple[Word, int]) -> bool:
    word, bit = feature
    return bool(words[word] >> bit & 1)


class _Leaf(ctypes.Structure):
    _fields_ = (("cpuid", ctypes.c_uint32 * 4), ("active", ctypes.c_uint32 * 4))


# glibc's numbers of the leaves (sys/platform/x86.h): an interface that only grows.
_GLIBC_LEAVES = {(1, 0): 0, (7, 0): 1, (0x80000001, 0): 2, (7, 1): 6}


def _from_glibc() -> tuple[Words, int]:
    """CPUID's words and the enabled state. Raises `AttributeError` without glibc 2.33."""
    leaf_of = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    leaf_of.restype = ctypes.POINTER(_Leaf)
    leaf_of.argtypes = (ctypes.c_uint,)
    words: dict[Word, int] = {_AVX10_VERSION: 0}
    active: dict[Word, int] = {}
    for (leaf, subleaf), number in _GLIBC_LEAVES.items():
        contents = leaf_of(number).contents
        for i, register in enumerate(_REGISTERS):
            words[leaf, subleaf, register] = contents.cpuid[i]
            active[leaf, subleaf, register] = contents.active[i]
    # XCR0 is not handed out, but a feature is active only if its state is enabled.
    state = 0
    for word, named in _FEATURES.items():
        for bit, (_, needs) in named.items():
            if active[word] >> bit & 1:
                state |= needs
    return words, state


# In: edi leaf, esi subleaf, rdx where to put four words. rbx belongs to the caller.
_CPUID = bytes.fromhex(
    "53 49 89 d0 89 f8 89 f1 0f a2"  # push rbx; mov r8,rdx; mov eax,edi; mov ecx,esi; cpuid
    "41 89 00 41 89 58 04 41 89 48 08 41 89 50 0c 5b c3"  # store eax ebx ecx edx; pop rbx; ret
)
_XGETBV = bytes.fromhex("31 c9 0f 01 d0 48 c1 e2 20 48 09 d0 c3")  # xor ecx,ecx; xgetbv; join; ret
_XGETBV_AT = 64


def _from_instruction() -> tuple[Words, int]:
    """CPUID's words and XCR0. Raises `OSError` where memory can't be made executable."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as page:
        page[: len(_CPUID)] = _CPUID
        page[_XGETBV_AT : _XGETBV_AT + len(_XGETBV)] = _XGETBV
        anchor = ctypes.c_char.from_buffer(page)
        try:
            address = ctypes.addressof(anchor)
            _make_executable(address)
            return _ask(address)
        finally:
            del anchor  # the page can't be unmapped while something points into it


def _make_executable(address: int) -> None:
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise OSError(ctypes.get_errno(), "this system forbids executable memory")


def _ask(address: int) -> tuple[Words, int]:
    output = ctypes.c_uint32 * 4
    cpuid = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(output))(
        address
    )
    xgetbv = ctypes.CFUNCTYPE(ctypes.c_uint64)(address + _XGETBV_AT)
    words: dict[Word, int] = {}

    def ask(leaf: int, subleaf: int) -> None:
        answer = output()
        cpuid(leaf, subleaf, ctypes.byref(answer))
        for i, register in enumerate(_REGISTERS):
            words[leaf, subleaf, register] = answer[i]

    # A leaf beyond the highest one answers with whatever the highest one says.
    ask(0, 0)
    highest = words[0, 0, "eax"]
    ask(7, 0)
    has_7_1 = highest >= 7 and words[7, 0, "eax"] >= 1
    known = {(1, 0): True, (7, 0): highest >= 7, (7, 1): has_7_1, (0x24, 0): highest >= 0x24}
    ask(0x80000000, 0)
    known[0x80000001, 0] = words[0x80000000, 0, "eax"] >= 0x80000001
    for (leaf, subleaf), present in known.items():
        if present:
            ask(leaf, subleaf)
        else:
            words.update({(leaf, subleaf, register): 0 for register in _REGISTERS})
    return words, xgetbv() if _has(words, _OSXSAVE) else 0
