"""Widgets of a lesson: a few controls, and a picture that a pure function draws from their values.

    def render_corner(queries: int, keys: int, align: str) -> str: …    # HTML or SVG; pure, tested by itself

    def corner_widget() -> Card:
        corners = ["top-left", "bottom-right"]
        return card(render_corner, slider("queries", 2, 1, 8), choice("align", "top-left", corners))

Without a live kernel (GitHub, a printed page) the stored output is the picture of the first values. Only the
core controls of ipywidgets are used, so 7.7 (Colab) and 8 serve alike; without ipywidgets the static picture
remains.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.classroom.messages import say
from course_lib.classroom.svg import Number, as_images


@dataclass(frozen=True)
class Control:
    """One control: the name of render's argument, its first value, its label and what it may be."""

    name: str
    value: Any
    label: str
    kind: str
    options: tuple[Any, ...]

    def check(self, value: Any) -> None:
        """Raise ValueError that says what this control takes, unless it takes `value`."""
        if self.kind in ("int", "float"):
            low, high, _ = self.options
            good = not isinstance(value, bool) and isinstance(
                value, int if self.kind == "int" else int | float
            )
            if not (good and low <= value <= high):
                raise ValueError(f"{self.name}: expected {self.kind} from {low} to {high}, got {value!r}.")
        elif self.kind == "bool" and not isinstance(value, bool):
            raise ValueError(f"{self.name}: expected True or False, got {value!r}.")
        elif self.kind == "choice" and value not in self.options:
            raise ValueError(f"{self.name}: expected one of {list(self.options)}, got {value!r}.")
        elif self.kind == "text" and not isinstance(value, str):
            raise ValueError(f"{self.name}: expected a string, got {value!r}.")


def slider(
    name: str, value: Number, low: Number, high: Number, *, step: Number | None = None, label: str = ""
) -> Control:
    """A slider over whole numbers, or over floats where one of its numbers is a float."""
    kind = "float" if any(isinstance(number, float) for number in (value, low, high, step)) else "int"
    return _control(
        Control(name, value, label or name, kind, (low, high, step or (0.1 if kind == "float" else 1)))
    )


def choice(name: str, value: Any, options: Sequence[Any], *, label: str = "") -> Control:
    """One of a few values."""
    return _control(Control(name, value, label or name, "choice", tuple(options)))


def toggle(name: str, value: bool, *, label: str = "") -> Control:
    """Yes or no."""
    return _control(Control(name, value, label or name, "bool", ()))


def entry(name: str, value: str, *, label: str = "") -> Control:
    """A line of text, any script. Its picture is drawn when the line is finished, not at every key."""
    return _control(Control(name, value, label or name, "text", ()))


def _control(control: Control) -> Control:
    control.check(control.value)
    return control


class Card:
    """Controls and their picture. As the last line of a cell it shows itself."""

    def __init__(self, render: Callable[..., str], controls: Sequence[Control]) -> None:
        self._render = render
        self._controls = {control.name: control for control in controls}
        self._values = {control.name: control.value for control in controls}
        self._html = self._draw()
        self._view: Any = None
        self._widgets: dict[str, Any] = {}
        self._picture: Any = None

    @property
    def values(self) -> dict[str, Any]:
        """The controls' present values."""
        return dict(self._values)

    @property
    def html(self) -> str:
        """The picture as it is shown now."""
        return self._picture.value if self._picture is not None else self._html

    def set(self, **values: Any) -> None:
        """Move controls as a student would, and print what changed (the cell after a widget does this).

        Raises ValueError for a control that is not there or a value it does not take.
        """
        for name, value in values.items():
            if name not in self._controls:
                raise ValueError(f"{name}: no such control; this widget has {', '.join(self._controls)}.")
            self._controls[name].check(value)
        self._build()
        before_values, before = self.values, self.html
        for name, value in values.items():
            if name in self._widgets:
                self._widgets[name].value = value  # its observer takes it from here
            else:
                self._take(name, value)
        moves = ", ".join(f"{name} {before_values[name]} → {self._values[name]}" for name in values)
        print(say("common.widget_changed" if self.html != before else "common.widget_same", moves=moves))

    def _take(self, name: str, value: Any) -> None:
        self._values[name] = value
        self._html = self._draw()
        if self._picture is not None:
            self._picture.value = self._html

    def _draw(self) -> str:
        try:
            return self._render(**self._values)
        except ValueError as error:  # values that do not go together: said in the picture
            return f'<p role="alert">{escape(str(error))}</p>'

    def _build(self) -> None:
        """Make the ipywidgets once they are needed. Without ipywidgets there are none: a static picture."""
        if self._view is not None:
            return
        try:
            import ipywidgets
        except ImportError:
            return
        for name, control in self._controls.items():
            made = _make(ipywidgets, control)
            made.observe(lambda change, name=name: self._take(name, change["new"]), names="value")
            self._widgets[name] = made
            made.value = self._values[name]
        self._picture = ipywidgets.HTML(value=self._html)
        self._view = ipywidgets.VBox([*self._widgets.values(), self._picture])

    def __repr__(self) -> str:
        return f"Card({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        self._build()
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        # Colab chooses among the forms by its own order, and needs no static one beside a live widget.
        if self._view is None or "google.colab" not in sys.modules:
            bundle["text/html"] = self._static()
        if self._view is not None:
            view = {"version_major": 2, "version_minor": 0, "model_id": self._view.model_id}
            bundle["application/vnd.jupyter.widget-view+json"] = view
        return bundle

    def _static(self) -> str:
        """The picture with a line of its values: what is seen where no kernel runs."""
        shown = ", ".join(f"{self._controls[name].label} = {value}" for name, value in self._values.items())
        return f'{as_images(self.html)}<div style="font:12px sans-serif;opacity:.75">{escape(shown)}</div>'


def card(render: Callable[..., str], *controls: Control) -> Card:
    """A widget that shows `render(**values)`. Raises TypeError where render does not take those names."""
    inspect.signature(render).bind(**{control.name: control.value for control in controls})
    return Card(render, controls)


def _make(ipywidgets: Any, control: Control) -> Any:
    shared = {"value": control.value, "description": control.label, "style": {"description_width": "initial"}}
    if control.kind in ("int", "float"):
        low, high, step = control.options
        made = ipywidgets.IntSlider if control.kind == "int" else ipywidgets.FloatSlider
        return made(min=low, max=high, step=step, **shared)
    if control.kind == "choice":
        return ipywidgets.Dropdown(options=list(control.options), **shared)
    if control.kind == "bool":
        return ipywidgets.Checkbox(indent=False, **shared)
    return ipywidgets.Text(continuous_update=False, **shared)
