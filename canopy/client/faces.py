"""The faces of the client library: methods that are written once, for blocking and for asynchronous
programs.

A class of the library has a core, whose public methods are coroutines under one of the decorators
below, and two faces, which inherit from the core and from `Blocking` or `Asynchronous`. In the end
every coroutine awaits the connection (`canopy.client.link.Link`). The connections of trio and
asyncio suspend the task. The connection of the blocking face blocks the thread and never suspends,
so `run` completes a coroutine with one `send`, without an event loop and without another thread.

Type checkers and editors see the descriptor `Method`, which has the parameters and the docstring of
the coroutine; `help` and `inspect` find functions, which each face makes of its methods.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")
A = TypeVar("A")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the blocking face suspended")


async def either(found: T | Awaitable[T]) -> T:
    """Return the result of a method of either face, awaiting it if it is awaitable."""
    return (await found) if isinstance(found, Awaitable) else found


class Method(Generic[P, B, A]):
    """A method that returns B from a blocking face, and A from an asynchronous one."""

    def __init__(self, blocking: Callable[..., B], asynchronous: Callable[..., A]) -> None:
        self.blocking = blocking
        self.asynchronous = asynchronous

    @overload
    def __get__(self, one: Blocking, kind: object) -> Callable[P, B]: ...
    @overload
    def __get__(self, one: Asynchronous, kind: object) -> Callable[P, A]: ...
    @overload
    def __get__(self, one: None, kind: type[Blocking]) -> Callable[Concatenate[Any, P], B]: ...
    @overload
    def __get__(self, one: None, kind: type[Asynchronous]) -> Callable[Concatenate[Any, P], A]: ...
    def __get__(self, one: object, kind: object) -> Any:
        """Return the method itself: a core has no functions, a face has replaced its methods
        (`_settle`)."""
        return self


class Blocking:
    """A face whose methods block the calling thread until they have a result."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _settle(cls, lambda method: method.blocking)


class Asynchronous:
    """A face whose methods are awaited."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _settle(cls, lambda method: method.asynchronous)


def _settle(face: type, chosen: Callable[[Method[..., Any, Any]], Callable[..., Any]]) -> None:
    """Replace the methods that a face has inherited by functions."""
    for name in dir(face):
        found = inspect.getattr_static(face, name)
        if isinstance(found, Method):
            setattr(face, name, chosen(found))


def operation(
    coroutine: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Method[P, T, Coroutine[Any, Any, T]]:
    """Make a method of a coroutine that asks the node; the blocking face returns the coroutine's
    result."""

    @wraps(coroutine)
    def blocking(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(coroutine(self, *args, **kwargs))

    return Method(blocking, coroutine)


Arguments: TypeAlias = tuple[Any, ...]
"""The arguments of a face's constructor."""


def opens(
    blocking: type[B], asynchronous: type[A]
) -> Callable[[Callable[Concatenate[Any, P], Arguments]], Method[P, B, Opening[A]]]:
    """Return a decorator for methods that open a new object. The decorated function returns the
    arguments of its constructor. In an asynchronous face the method's result is awaited, or entered
    with ``async with``."""

    def decorated(given: Callable[Concatenate[Any, P], Arguments]) -> Method[P, B, Opening[A]]:
        def opening(self: Any, *args: P.args, **kwargs: P.kwargs) -> Opening[A]:
            made = asynchronous(*given(self, *args, **kwargs))
            return Opening(lambda: _opened(made))

        _describe(opening, given, f"Opening[{asynchronous.__name__}]")
        return Method(_opening(given, blocking), opening)

    return decorated


def awaits(
    blocking: type[B], asynchronous: type[A]
) -> Callable[[Callable[Concatenate[Any, P], Arguments]], Method[P, B, Coroutine[Any, Any, A]]]:
    """Return a decorator like `opens` for objects that are no context managers. In an asynchronous
    face the method is a coroutine."""

    def decorated(
        given: Callable[Concatenate[Any, P], Arguments],
    ) -> Method[P, B, Coroutine[Any, Any, A]]:
        async def opening(self: Any, *args: P.args, **kwargs: P.kwargs) -> A:
            return await _opened(asynchronous(*given(self, *args, **kwargs)))

        _describe(opening, given, asynchronous.__name__)
        return Method(_opening(given, blocking), opening)

    return decorated


def makes(
    blocking: type[B], asynchronous: type[A]
) -> Callable[[Callable[Concatenate[Any, P], Arguments]], Method[P, B, A]]:
    """Return a decorator for methods that make a new object. The decorated function returns the
    arguments of its constructor."""

    def decorated(given: Callable[Concatenate[Any, P], Arguments]) -> Method[P, B, A]:
        return Method(_making(given, blocking), _making(given, asynchronous))

    return decorated


async def _opened(made: T) -> T:
    await made._open()  # type: ignore[attr-defined]
    return made


def _opening(given: Callable[Concatenate[Any, P], Arguments], kind: type[B]) -> Callable[..., B]:
    def opening(self: Any, *args: P.args, **kwargs: P.kwargs) -> B:
        return run(_opened(kind(*given(self, *args, **kwargs))))

    return _describe(opening, given, kind.__name__)


def _making(given: Callable[Concatenate[Any, P], Arguments], kind: type[T]) -> Callable[..., T]:
    def making(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(*given(self, *args, **kwargs))

    return _describe(making, given, kind.__name__)


def _describe(
    function: Callable[..., T], given: Callable[..., object], returns: str
) -> Callable[..., T]:
    """Give a function the name, docstring and parameters of `given`."""
    shown = inspect.signature(given).replace(return_annotation=returns)
    wraps(given)(function).__signature__ = shown  # type: ignore[attr-defined]
    return function


class Opening(Generic[A]):
    """An object that ``await`` opens, or ``async with``, which also closes it."""

    def __init__(self, opened: Callable[[], Awaitable[A]]) -> None:
        self._open = opened
        self._made: Any = None

    def __await__(self) -> Generator[object, object, A]:
        return self._open().__await__()

    async def __aenter__(self) -> A:
        self._made = await self._open()
        made: A = self._made
        return made

    async def __aexit__(self, *exc: object) -> None:
        await self._made.__aexit__(*exc)


class Context:
    """A core whose faces are context managers."""

    async def _leave(self, failed: bool) -> None:
        """End this object. `failed`: the block has raised an error."""
        raise NotImplementedError


class BlockingContext(Context, Blocking):
    """A blocking face that is a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        run(self._leave(kind is not None))


class AsynchronousContext(Context, Asynchronous):
    """An asynchronous face that is a context manager."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        await self._leave(kind is not None)


class Items(Generic[T]):
    """An asynchronous iterator. Unlike a generator it need not be closed."""

    def __init__(self, next_item: Callable[[], Awaitable[T | None]]) -> None:
        """`next_item` returns None at the end."""
        self._next_item = next_item

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        found = await self._next_item()
        if found is None:
            raise StopAsyncIteration
        return found
