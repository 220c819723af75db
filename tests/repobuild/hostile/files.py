"""Hostile files, each made by a function that is given the path of a canary file it tries to make.

A file does harm by running ``touch CANARY`` when somebody loads it without looking, or by asking its reader
for more than it can have.
"""

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib

import joblib
import numpy as np

PROTO4 = b"\x80\x04"
MIB = 1 << 20
ZEROS = bytes(MIB)
TORCH_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def text(value):
    """SHORT_BINUNICODE or BINUNICODE of a text."""
    data = value.encode()
    return (
        b"\x8c" + bytes([len(data)]) + data if len(data) < 256 else b"X" + struct.pack("<I", len(data)) + data
    )


def touch(canary):
    """``posix.system("touch CANARY")``, as opcodes that leave its answer on the stack."""
    return text("posix") + text("system") + b"\x93" + text(f"touch {canary}") + b"\x85R"


def trap(canary):
    """The smallest pickle that does it."""
    return PROTO4 + touch(canary) + b"."


def getattr_chain(canary):
    """``getattr(__import__("os"), "sys" + "tem")(...)`` out of nested REDUCEs."""
    importer = b"cbuiltins\n__import__\n" + text("os") + b"\x85R"
    name = b"coperator\nadd\n" + text("sys") + text("tem") + b"\x86R"
    return PROTO4 + b"cbuiltins\ngetattr\n" + importer + name + b"\x86R" + text(f"touch {canary}") + b"\x85R."


def evaluated(canary):
    """``builtins.eval`` of an expression."""
    code = f"__import__('os').system('touch {canary}')"
    return PROTO4 + b"cbuiltins\neval\n" + text(code) + b"\x85R."


def executed(canary):
    """``builtins.exec`` through INST, an opcode of protocol 0."""
    return f"(S'import os; os.system(\"touch {canary}\")'\nibuiltins\nexec\n.".encode()


def by_obj(canary):
    """The OBJ opcode calls what lies above the mark."""
    return b"(cposix\nsystem\n" + f"S'touch {canary}'\no.".encode()


def by_newobj_ex(canary):
    """NEWOBJ_EX of a class that starts processes (only its ``__init__`` does, so this one runs nothing)."""
    words = b"(" + text("touch") + text(str(canary)) + b"l"
    return PROTO4 + b"csubprocess\nPopen\n(" + words + b"t}\x92."


def by_setstate(canary):
    """BUILD with a ``__setstate__`` put into the object by an earlier BUILD."""
    item = b"cbuiltins\nobject\n)\x81"
    return (
        PROTO4 + b"ctypes\nSimpleNamespace\n)R" + b"}" + text("__setstate__") + b"cposix\nsystem\ns" + b"b"
        + text(f"touch {canary}") + b"b" + item + b"0."
    )  # fmt: skip


def names_from_the_memo(canary):
    """STACK_GLOBAL of strings that lie in the memo, put there by another part of the file."""
    return (
        PROTO4 + text("system") + b"\x94" + text("posix") + b"\x94" + b"00" + b"N0" * 500
        + b"h\x01h\x00\x93" + text(f"touch {canary}") + b"\x85R."
    )  # fmt: skip


def names_computed(canary):
    """STACK_GLOBAL of a name that only a call makes."""
    joined = b"coperator\nconcat\n" + text("pos") + text("ix") + b"\x86R"
    return PROTO4 + joined + text("system") + b"\x93" + text(f"touch {canary}") + b"\x85R."


def extension(canary):
    """EXT1, whose meaning lies in copyreg's registry; the file adds to the registry first."""
    add = b"ccopyreg\nadd_extension\n" + text("posix") + text("system") + b"K\xf0\x87R0"
    return PROTO4 + add + b"\x82\xf0" + text(f"touch {canary}") + b"\x85R."


def pickle_in_bytes(canary):
    """``pickle.loads`` of bytes that hold the harmful pickle."""
    inner = trap(canary)
    return PROTO4 + b"c_pickle\nloads\nB" + struct.pack("<I", len(inner)) + inner + b"\x85R."


class _Trap:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.canary}",)


def _array(canary):
    array = np.empty(2, dtype=object)
    array[:] = ["x", _Trap(canary)]
    return array


def joblib_object_array(canary):
    """A pickle inside the object array that joblib writes as an array wrapper."""
    stream = io.BytesIO()
    joblib.dump({"coef_": _array(canary)}, stream)
    return stream.getvalue()


def joblib_nested_wrappers(canary):
    """Array wrappers inside array wrappers, harm at the innermost."""
    value = _array(canary)
    for _ in range(20):
        outer = np.empty(1, dtype=object)
        outer[0] = value
        value = outer
    stream = io.BytesIO()
    joblib.dump(value, stream)
    return stream.getvalue()


def behind_noise(canary):
    """Harm behind a large array."""
    stream = io.BytesIO()
    joblib.dump([np.zeros(200_000), _Trap(canary)], stream)
    return stream.getvalue()


def protocol_255(canary):
    """A protocol that does not exist."""
    return b"\x80\xff" + touch(canary) + b"."


def no_stop(canary):
    """Harm that is done before the missing STOP."""
    return PROTO4 + touch(canary)


def invalid_after_harm(canary):
    """Harm that is done before an invalid opcode."""
    return PROTO4 + touch(canary) + b"\xff"


def terminal_escapes(canary):
    """Names that would clear the screen and reorder the text."""
    return (
        PROTO4
        + text("\x1b[2J\x1b]0;owned\x07evil")
        + text("\u202emetsys\u2066")
        + b"\x93)R0"
        + touch(canary)
        + b"."
    )


def opcode_flood(canary):
    """Twenty-five million opcodes in 25 kB."""
    return gzip.compress(b"\x80\x04" + b"N0" * 12_500_000 + touch(canary) + b".", 1)


def stack_flood(canary):
    """Five million objects on the stack."""
    return gzip.compress(b"\x80\x04" + b"N" * 5_000_000 + touch(canary) + b".", 1)


def memo_bomb(canary):
    """Five million entries of the memo, by increasing numbers."""
    puts = b"".join(b"r" + struct.pack("<I", i) for i in range(0, 1 << 31, 1 << 9))
    return gzip.compress(PROTO4 + b"N" + puts[: 25 << 20] + b"0" + touch(canary) + b".", 1)


def memo_doubling(canary):
    """Lists of lists of the memo, 2**60 leaves when walked."""
    body = b"]\x94"
    for level in range(60):
        body += b"]\x94(" + (b"j" + struct.pack("<I", level)) * 2 + b"e"
    return PROTO4 + body + touch(canary) + b"."


def length_of_2_31(canary):
    """A byte string that says it has 2**31 bytes."""
    return PROTO4 + b"B" + struct.pack("<I", 1 << 31) + touch(canary)


def length_of_2_63(canary):
    """A text that says it has 2**63 - 1 bytes."""
    return PROTO4 + b"\x8d" + struct.pack("<Q", (1 << 63) - 1) + touch(canary)


def negative_length(canary):
    """A string of -1 bytes, of protocol 1."""
    return touch(canary) + b"T\xff\xff\xff\xff."


def frame_of_2_60(canary):
    """A frame that says it has 2**60 bytes."""
    return PROTO4 + b"\x95" + struct.pack("<Q", 1 << 60) + touch(canary) + b"."


def long_integer(canary):
    """An integer of a million digits, quadratic to read."""
    return b"L" + b"9" * MIB + b"L\n0" + touch(canary) + b"."


def deep_tuples(canary):
    """A million nested tuples, which end a recursive reader."""
    return PROTO4 + b"N" + b"\x85" * 1_000_000 + b"0" + touch(canary) + b"."


def deep_marks(canary):
    """A million marks."""
    return PROTO4 + b"(" * 1_000_000 + touch(canary) + b"."


def many_names(canary):
    """Two hundred thousand imports with long names."""
    names = b"".join(b"cm%d\n%s\n0" % (i, b"n" * 200) for i in range(200_000))
    return gzip.compress(PROTO4 + names + touch(canary) + b".", 1)


def _bomb(size=6 << 30):
    machine = zlib.compressobj(1, wbits=31)
    parts = [machine.compress(PROTO4 + b"\x8e" + struct.pack("<Q", size))]
    piece = machine.compress(bytes(64 * MIB)) + machine.flush(zlib.Z_FULL_FLUSH)
    block = machine.compress(bytes(64 * MIB)) + machine.flush(zlib.Z_FULL_FLUSH)
    parts += [piece, *([block] * (size // (64 * MIB) - 1))]
    return b"".join(parts)


def gzip_bomb(canary):
    """Six gigabytes of zeros in 27 MB, cut before its end."""
    return _bomb()


def gzip_members(canary):
    """Ten thousand gzip members in a row, the last one harmful."""
    return gzip.compress(PROTO4 + b"N") + gzip.compress(b"0N") * 10_000 + gzip.compress(touch(canary) + b".")


def xz_bomb(canary):
    """256 MB of zeros in xz."""
    return lzma.compress(PROTO4 + b"\x8e" + struct.pack("<Q", 1 << 34) + bytes(256 * MIB), preset=0)


def lzma_dictionary(canary):
    """An lzma header that asks its reader for 3 GiB."""
    data = bytearray(lzma.compress(trap(canary), lzma.FORMAT_ALONE))
    data[1:5] = b"\x00\x00\x00\xc0"
    return bytes(data)


def bz2_bomb(canary):
    """256 MB of zeros in bzip2."""
    return bz2.compress(PROTO4 + b"\x8e" + struct.pack("<Q", 1 << 34) + bytes(256 * MIB))


def compressed_twice(canary):
    """gzip in gzip; joblib opens only one layer."""
    return gzip.compress(gzip.compress(trap(canary)))


def zipped(members, method=zipfile.ZIP_DEFLATED):
    """A zip archive of ``{name: bytes}`` or ``[(name, bytes)]``."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, data)
    return stream.getvalue()


def torch_zip(canary):
    """A file of torch.save whose pickle runs a command, with persistent ids as torch writes them."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x04tQ"
    body = PROTO4 + b"}(" + text("w") + storage + text("x") + touch(canary) + b"u."
    return zipped({"net/data.pkl": body, "net/data/0": bytes(16), "net/version": b"3\n"}, zipfile.ZIP_STORED)


def torch_old(canary):
    """A file of torch.save before 1.6: five pickles in a row, harm in the fourth."""
    sizes = pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2)
    return TORCH_MAGIC + pickle.dumps(1001, 2) + sizes + trap(canary) + pickle.dumps([], 2)


def torchscript(canary):
    """A TorchScript archive whose constants run a command."""
    return zipped(
        {"m/data.pkl": b"\x80\x02N.", "m/constants.pkl": trap(canary), "m/code/m.py": b"", "m/version": b"3"}
    )


def npz_with_objects(canary):
    """An npz file with an object array."""
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3), b=_array(canary))
    return stream.getvalue()


def npy_with_objects(canary):
    """An npy file of objects."""
    stream = io.BytesIO()
    np.save(stream, _array(canary), allow_pickle=True)
    return stream.getvalue()


def zip_in_zip(canary):
    """An archive in an archive, harm in the inner one."""
    return zipped({"outer/data.pkl": b"\x80\x02N.", "inner.zip": torch_zip(canary)})


def zips_all_the_way(canary):
    """Twenty archives inside each other."""
    data = torch_zip(canary)
    for _ in range(20):
        data = zipped({"a.zip": data, "data.pkl": trap(canary)})
    return zipped({"m/data.pkl": b"\x80\x02N.", "a.zip": data})


def forty_two(canary):
    """Sixteen archives that each hold sixteen that each hold 64 MB of zeros, as 42.zip does."""
    data = zipped(
        {f"{i}.pkl": PROTO4 + b"\x8e" + struct.pack("<Q", 1 << 40) + bytes(64 * MIB) for i in range(1)}
    )
    for _ in range(2):
        data = zipped({f"{i}.zip": data for i in range(16)})
    return zipped({"m/data.pkl": trap(canary), "lib.zip": data})


def many_members(canary):
    """Thirty thousand members."""
    return zipped(
        [("m/data.pkl", trap(canary)), *((f"m/{i}", b"") for i in range(30_000))], zipfile.ZIP_STORED
    )


def overlapping_members(canary):
    """Members that share one compressed stream, as in the bombs of 2019."""
    data = bytearray(zipped({"m/data.pkl": trap(canary), "m/data/0": bytes(MIB), "m/data/1": bytes(MIB)}))
    at = data.rfind(b"PK\x01\x02")
    before = data.rfind(b"PK\x01\x02", 0, at)
    data[at + 42 : at + 46] = data[before + 42 : before + 46]
    return bytes(data)


def traversal(canary):
    """Names that lead out of the folder that the archive is unpacked into."""
    stem = canary.name
    return zipped(
        {"m/data.pkl": trap(canary), f"../{stem}": b"x", f"/tmp/{stem}": b"x", f"a/..\\..\\{stem}": b"x"}
    )


def lying_sizes(canary):
    """A member that says it has 2 GiB fewer bytes than it has."""
    data = bytearray(
        zipped(
            {"m/data.pkl": PROTO4 + b"\x8e" + struct.pack("<Q", 64 * MIB) + bytes(64 * MIB) + touch(canary)}
        )
    )
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 10)
    return bytes(data)


def lying_names(canary):
    """A member whose two headers bear different names."""
    return zipped({"m/data.pkl": trap(canary)}).replace(b"m/data.pkl", b"m/tada.pkl", 1)


def directory_of_4_gib(canary):
    """An archive that says its list of members has 4 GiB."""
    data = bytearray(zipped({"m/data.pkl": trap(canary)}))
    at = data.rfind(b"PK\x05\x06")
    data[at + 12 : at + 16] = b"\xff\xff\xff\xff"
    return bytes(data)


def cut_zip(canary):
    """An archive without its end."""
    return torch_zip(canary)[:-40]


def encrypted_zip(canary):
    """A member that says it is encrypted."""
    data = bytearray(zipped({"m/data.pkl": trap(canary)}))
    for magic, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.find(magic) + offset] |= 1
    return bytes(data)


def zip_with_lzma(canary):
    """A member in a compression whose reader takes what memory it is told to."""
    return zipped({"m/data.pkl": trap(canary)}, zipfile.ZIP_LZMA)


def tar_of_joblib(canary):
    """A tar archive with links out of its folder and the pickle."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        link = tarfile.TarInfo("../../link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        entry = tarfile.TarInfo("model.joblib")
        data = trap(canary)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def polyglot(canary):
    """A pickle with a skops archive behind it: first bytes and end tell different tales."""
    return trap(canary) + zipped({"schema.json": b"{}"})


def skops_schema(tree, **members):
    """A skops file with a schema of one's own."""
    return zipped({"schema.json": json.dumps({"protocol": 2, "_skops_version": "0.16.0", **tree}), **members})


def skops_reduce(canary):
    """A skops file that wants to call a command by skops' ReduceNode-like loaders."""
    call = {"__class__": "system", "__module__": "posix", "__loader__": "FunctionNode", "__id__": 1}
    part = {"__class__": "partial", "__module__": "functools", "__loader__": "PartialNode", "__id__": 2}
    arguments = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "__id__": 3}
    empty = {
        "__class__": "dict",
        "__module__": "builtins",
        "__loader__": "DictNode",
        "content": {},
        "__id__": 4,
        "key_types": {
            "__class__": "list",
            "__module__": "builtins",
            "__loader__": "ListNode",
            "content": [],
            "__id__": 5,
        },
    }
    tuple_ = {
        "__class__": "tuple",
        "__module__": "builtins",
        "__loader__": "TupleNode",
        "__id__": 6,
        "content": [{**arguments, "content": json.dumps(f"touch {canary}"), "is_json": True}],
    }
    return skops_schema(
        {
            **part,
            "content": {
                "func": {**call, "content": {"module_path": "posix", "function": "system"}},
                "args": tuple_,
                "kwds": empty,
                "namespace": empty,
            },
        }
    )


def skops_object(canary):
    """A skops file with an object of a class that starts a process."""
    node = {"__class__": "Popen", "__module__": "subprocess", "__loader__": "ObjectNode", "__id__": 1}
    return skops_schema({**node, "content": None})


def skops_deep(canary):
    """A schema nested a hundred thousand deep."""
    return zipped({"schema.json": b'{"content":' * 100_000 + b"1" + b"}" * 100_000})


def skops_bomb(canary):
    """A schema of 127 MiB of blanks, the most that is read, in 127 kB, that is no JSON in the end."""
    return zipped({"schema.json": b" " * (127 * MIB)})


def skops_declared_huge(canary):
    """A member that says it has 3 GiB, and a schema that says 2 GiB."""
    data = bytearray(zipped({"a.npy": b"x", "schema.json": b"{}"}))
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 1 << 31)
    return bytes(data)


def skops_pickle_array(canary):
    """A skops file whose array is an npy file of objects."""
    node = {
        "__class__": "ndarray",
        "__module__": "numpy",
        "__loader__": "NdArrayNode",
        "type": "numpy",
        "__id__": 1,
    }
    return skops_schema({**node, "file": "a.npy"}, **{"a.npy": npy_with_objects(canary)})


def skops_traversal(canary):
    """A skops file with members outside of its folder."""
    return skops_schema({}, **{f"../{canary.name}": b"x"})


QUICK = (
    trap, getattr_chain, evaluated, executed, by_obj, by_newobj_ex, by_setstate, names_from_the_memo,
    names_computed, extension, pickle_in_bytes, joblib_object_array, joblib_nested_wrappers, behind_noise,
    protocol_255, no_stop, invalid_after_harm, terminal_escapes, memo_doubling, length_of_2_31,
    length_of_2_63, negative_length, frame_of_2_60, long_integer, deep_tuples, deep_marks, gzip_members,
    lzma_dictionary, compressed_twice, torch_zip, torch_old, torchscript, npz_with_objects, npy_with_objects,
    zip_in_zip, zips_all_the_way, overlapping_members, traversal, lying_sizes, lying_names,
    directory_of_4_gib, cut_zip, encrypted_zip, zip_with_lzma, tar_of_joblib, polyglot,
    skops_traversal, skops_declared_huge,
)  # fmt: skip
"""Files that are refused without a child process."""

IN_CHILD = (skops_reduce, skops_object, skops_deep, skops_pickle_array)
"""Files whose schema skops reads in the child process."""

LONG = (
    opcode_flood, stack_flood, memo_bomb, many_names, gzip_bomb, xz_bomb, bz2_bomb, forty_two, many_members,
    skops_bomb,
)  # fmt: skip
"""Files that keep a processor busy for seconds."""
