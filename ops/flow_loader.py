"""Find a flow by `MODULE:NAME`, as command lines name it."""

import importlib
import sys
from pathlib import Path

from dalsegno.streams.client.flow import Flow


class FlowLoadError(Exception):
    """There is no such flow. The message says which part of the name is wrong."""


def load_flow(name: str) -> Flow:
    """The flow at `package.module:attribute`; the working folder is searched first.

    Raises FlowLoadError. What the module itself raises while it is imported comes through.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise FlowLoadError(f"{name!r}: write MODULE:FLOW, for example shop.orders:order")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise FlowLoadError(f"no module {error.name!r} in {here} or the environment") from error
    found = getattr(module, attribute, None)
    if isinstance(found, Flow):
        return found
    flows = [key for key, value in vars(module).items() if isinstance(value, Flow)]
    known = f"it has {', '.join(flows)}" if flows else "it has no flow"
    raise FlowLoadError(f"{module_name} has no flow {attribute!r}: {known}")
