"""Bills as one picture: a bar for each, its parts side by side. SVG, the same bytes for the same bills."""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from lakestream.cost.model import PARTS, Bill

_COLOURS: Final = ("#2f5d8a", "#6c9bc4", "#2a7f62", "#c0563b", "#8a6d3b", "#7a5c99")
_WIDTH, _LEFT, _RIGHT, _ROW, _BAR = 960, 220, 130, 46, 26


def draw(bills: Sequence[Bill], title: str) -> str:
    most = max(bill.month for bill in bills)
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    height = 96 + _ROW * len(bills)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="28" font-size="16">{escape(title)}</text>',
    ]
    for row, bill in enumerate(bills):
        top = 48 + row * _ROW
        lines.append(f'<text x="16" y="{top + 18}" font-size="13">{escape(bill.name)}</text>')
        x = float(_LEFT)
        for part, colour in zip(PARTS, _COLOURS, strict=True):
            width = bill.dollars[part] * scale
            if width >= 0.05:
                lines.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>')
            x += width
        lines.append(f'<text x="{x + 8:.1f}" y="{top + 18}" font-size="13">${bill.hour:,.0f} an hour</text>')
    for number, (part, colour) in enumerate(zip(PARTS, _COLOURS, strict=True)):
        x, y = _LEFT + 110 * number, height - 22
        lines.append(f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 18}" y="{y}" font-size="12">{part}</text>')
    return "\n".join([*lines, "</svg>", ""])
