"""A stand-in for the module ``tensorrt``, on NumPy and ONNX's reference evaluator.

It has those members of the real bindings that the backend uses, with their names, arguments and
ways to fail, and nothing that the real ones lack; `api.json` lists these.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

__version__ = "10.14.1"
_MAGIC = b"fake engine\n"
_TYPES = {1: "FLOAT", 7: "INT64", 10: "HALF", 9: "BOOL", 6: "INT32", 11: "DOUBLE"}
_NUMPY = {"FLOAT": "f4", "INT64": "i8", "HALF": "f2", "BOOL": "?", "INT32": "i4", "DOUBLE": "f8"}

DataType = enum.Enum("DataType", ["FLOAT", "INT64", "HALF", "BOOL", "INT32"])
BuilderFlag = enum.Enum("BuilderFlag", ["FP16", "TF32", "STRICT_NANS"])
MemoryPoolType = enum.Enum("MemoryPoolType", ["WORKSPACE"])
NetworkDefinitionCreationFlag = enum.IntEnum(
    "NetworkDefinitionCreationFlag", ["STRONGLY_TYPED"], start=1
)
TensorIOMode = enum.Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])


class Logger:
    ERROR, WARNING = 1, 2

    def __init__(self, min_severity: int = WARNING) -> None:
        self.min_severity = min_severity


class IPluginRegistry:
    def load_library(self, plugin_path: str) -> object:
        return ctypes.CDLL(plugin_path)


def get_plugin_registry() -> IPluginRegistry:
    return IPluginRegistry()


def init_libnvinfer_plugins(logger: Logger, namespace: str) -> bool:
    return True


def _need_gpu() -> None:
    if os.environ.get("FAKE_TENSORRT_NO_CUDA"):
        raise TypeError("pybind11::init(): factory function returned nullptr")


class ITensor:
    def __init__(self, value: onnx.ValueInfoProto) -> None:
        tensor = value.type.tensor_type
        self.name = value.name
        self.dtype = DataType[_TYPES[tensor.elem_type]]
        self.shape = tuple(
            each.dim_value if each.HasField("dim_value") else -1 for each in tensor.shape.dim
        )


class INetworkDefinition:
    _model: onnx.ModelProto

    @property
    def _inputs(self) -> list[onnx.ValueInfoProto]:
        constant = {each.name for each in self._model.graph.initializer}
        return [each for each in self._model.graph.input if each.name not in constant]

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    def get_input(self, index: int) -> ITensor:
        return ITensor(self._inputs[index])


class ParserError:
    def __init__(self, text: str) -> None:
        self._text = text

    def desc(self) -> str:
        return self._text


class OnnxParser:
    def __init__(self, network: INetworkDefinition, logger: Logger) -> None:
        self._network = network
        self._errors: list[ParserError] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def parse_from_file(self, model: str) -> bool:
        try:
            self._network._model = onnx.load(model)
            ReferenceEvaluator(self._network._model)
        except Exception as error:  # noqa: BLE001
            self._errors.append(ParserError(str(error)))
            return False
        return True


class IOptimizationProfile:
    def __init__(self) -> None:
        self._shapes: dict[str, tuple[int, ...]] = {}

    def set_shape(
        self,
        input: str,  # noqa: A002
        min: tuple[int, ...],  # noqa: A002
        opt: tuple[int, ...],
        max: tuple[int, ...],  # noqa: A002
    ) -> None:
        assert min == opt == max
        self._shapes[input] = opt


class ITimingCache:
    pass


class IBuilderConfig:
    def __init__(self) -> None:
        self._flags: set[str] = {"TF32"}
        self._pools: dict[str, int] = {}
        self._profiles: list[IOptimizationProfile] = []
        self.builder_optimization_level = 3

    def set_flag(self, flag: Any) -> None:
        self._flags.add(flag.name)

    def clear_flag(self, flag: Any) -> None:
        self._flags.discard(flag.name)

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        self._pools[pool.name] = pool_size

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        cache = ITimingCache()
        cache._of = bytes(serialized_timing_cache)  # type: ignore[attr-defined]
        return cache

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        return ignore_mismatch or cache._of.startswith(b"of this GPU")  # type: ignore[attr-defined]

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1


class Builder:
    def __init__(self, logger: Logger) -> None:
        _need_gpu()

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        network = INetworkDefinition()
        network._flags = flags  # type: ignore[attr-defined]
        return network

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> bytes | None:
        free = [each for each in map(ITensor, network._inputs) if -1 in each.shape]
        told = {name for each in config._profiles for name in each._shapes}
        if {each.name for each in free} - told:
            return None  # as without a profile
        settings = {
            "flags": sorted(config._flags),
            "pools": config._pools,
            "level": config.builder_optimization_level,
            "network": network._flags,  # type: ignore[attr-defined]
        }
        return _MAGIC + json.dumps(settings).encode() + b"\n" + network._model.SerializeToString()


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._shapes[name] = tuple(shape)
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self._shapes:
            return self._shapes[name]
        given = {
            each: np.zeros(shape, self._engine._numpy(each)) for each, shape in self._shapes.items()
        }
        return tuple(self._engine._run(given)[name].shape)

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        given = {}
        for name, shape in self._shapes.items():
            array = np.empty(shape, self._engine._numpy(name))
            ctypes.memmove(array.ctypes.data, self._addresses[name], array.nbytes)
            given[name] = array
        for name, array in self._engine._run(given).items():
            kept = np.ascontiguousarray(array)
            ctypes.memmove(self._addresses[name], kept.ctypes.data, kept.nbytes)
        return True


class ICudaEngine:
    def __init__(self, model: onnx.ModelProto) -> None:
        network = INetworkDefinition()
        network._model = model
        self._inputs = [ITensor(each) for each in network._inputs]
        self._outputs = [ITensor(each) for each in model.graph.output]
        self._evaluator = ReferenceEvaluator(model)
        self._all = [*self._inputs, *self._outputs]
        self.num_io_tensors = len(self._all)

    def _numpy(self, name: str) -> Any:
        return np.dtype(_NUMPY[self.get_tensor_dtype(name).name])

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        found = self._evaluator.run(None, given)
        return dict(zip((each.name for each in self._outputs), map(np.asarray, found), strict=True))

    def get_tensor_name(self, index: int) -> str:
        return str(self._all[index].name)

    def get_tensor_mode(self, name: str) -> Any:
        inputs = {each.name for each in self._inputs}
        return TensorIOMode.INPUT if name in inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return next(each.dtype for each in self._all if each.name == name)

    def create_execution_context(self) -> IExecutionContext:
        return IExecutionContext(self)


class Runtime:
    def __init__(self, logger: Logger) -> None:
        _need_gpu()

    def deserialize_cuda_engine(self, serialized_engine: Any) -> ICudaEngine | None:
        raw = bytes(serialized_engine)
        if not raw.startswith(_MAGIC):
            return None
        model = raw[len(_MAGIC) :].partition(b"\n")[2]
        return ICudaEngine(onnx.ModelProto.FromString(model))
