"""The process that builds: started by the TensorRT backend, one for each plan."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from trivet.errors import BackendError, ShapeError
from trivet.plans.backends.child import serve
from trivet.plans.backends.compiling import Done, Job, keep_expected
from trivet.plans.backends.tensorrt_executable import (
    DTYPES,
    PLAN_FILE,
    TensorRtExecutable,
    load_plugins,
    load_tensorrt,
    on_the_gpu,
)
from trivet.plans.backends.tensorrt_options import Options
from trivet.plans.model import Dimension, TensorInfo, shape_in_words


def main() -> None:
    """Do one `Job`."""
    serve(Job, _work)


def _work(job: Job) -> Done:
    start = time.perf_counter()
    options = msgspec.convert(job.options, Options)
    trt = load_tensorrt()
    logger = trt.Logger(trt.Logger.WARNING)
    load_plugins(trt, logger, options.plugins)
    builder = on_the_gpu(trt.Builder, logger)
    network = _parse(trt, builder, logger, Path(job.model), options)
    config = builder.create_builder_config()
    _configure(trt, config, options)
    inputs = _sized(builder, config, network, job.shapes)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise BackendError("TensorRT can't build the model")
    plan = bytes(engine)
    seconds = time.perf_counter() - start
    outputs = _outputs(trt, logger, plan, inputs)
    keep_expected(job, TensorRtExecutable(plan, inputs, outputs, options.plugins))
    (Path(job.folder) / PLAN_FILE).write_bytes(plan)
    detail = {
        "inputs": msgspec.to_builtins(inputs),
        "outputs": msgspec.to_builtins(outputs),
        "size": len(plan),
    }
    return Done(detail=detail, seconds=seconds)


def _parse(trt: Any, builder: Any, logger: Any, model: Path, options: Options) -> Any:
    flags = 0
    if options.strongly_typed:
        flags |= 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        said = "; ".join(parser.get_error(each).desc() for each in range(parser.num_errors))
        raise BackendError(f"TensorRT can't read the model: {said}")
    return network


def _configure(trt: Any, config: Any, options: Options) -> None:
    for name, value in options.flags.items():
        flag = getattr(trt.BuilderFlag, name, None)
        if flag is None:
            raise BackendError(
                f"TensorRT {trt.__version__} has no flag {name}",
                hint="from release 11 on the model says the types; export it in those wanted",
            )
        if value:
            config.set_flag(flag)
        else:
            config.clear_flag(flag)
    if options.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if options.timing_cache:
        cache = config.create_timing_cache(Path(options.timing_cache).read_bytes())
        if not config.set_timing_cache(cache, False):
            raise BackendError(
                f"{options.timing_cache} was measured on another GPU, or by another TensorRT"
            )


def _sized(
    builder: Any, config: Any, network: Any, shapes: dict[str, tuple[Dimension, ...]]
) -> tuple[TensorInfo, ...]:
    """The inputs with their sizes, for which alone the engine is built."""
    profile, inputs = builder.create_optimization_profile(), []
    free = False
    for number in range(network.num_inputs):
        tensor = network.get_input(number)
        given = tuple(tensor.shape)
        wanted = shapes.get(tensor.name, given)
        sizes = tuple(each for each in wanted if isinstance(each, int) and each >= 0)
        if len(sizes) != len(given):
            raise BackendError(
                f"{tensor.name!r} has no size for each axis: {shape_in_words(wanted)}",
                hint="give sizes by shape rules",
            )
        if any(a not in (-1, b) for a, b in zip(given, sizes, strict=True)):
            raise ShapeError(f"{tensor.name!r} is {given} in the model, {sizes} was asked for")
        if -1 in given:
            free = True
            profile.set_shape(tensor.name, sizes, sizes, sizes)
        inputs.append(TensorInfo(tensor.name, _dtype(tensor), sizes))
    if free:
        config.add_optimization_profile(profile)
    return tuple(inputs)


def _outputs(
    trt: Any, logger: Any, plan: bytes, inputs: tuple[TensorInfo, ...]
) -> tuple[TensorInfo, ...]:
    """The outputs, with the sizes that follow from those of the inputs."""
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        raise BackendError("TensorRT refuses the engine that it has just built")
    context = engine.create_execution_context()
    for each in inputs:
        context.set_input_shape(each.name, each.shape)
    found = []
    for number in range(engine.num_io_tensors):
        name = engine.get_tensor_name(number)
        if engine.get_tensor_mode(name) != trt.TensorIOMode.OUTPUT:
            continue
        shape = tuple(context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise BackendError(f"the size of {name!r} depends on the values of the inputs")
        found.append(TensorInfo(name, _named(engine.get_tensor_dtype(name), name), shape))
    return tuple(found)


def _dtype(tensor: Any) -> str:
    return _named(tensor.dtype, tensor.name)


def _named(dtype: Any, name: str) -> str:
    found = DTYPES.get(dtype.name)
    if found is None:
        raise BackendError(
            f"{name!r} is {dtype.name}, which NumPy does not have",
            hint="convert it inside the model, for example with a Cast to float32",
        )
    return found
