"""4x4 sudokus: all 288 full grids, and puzzles with one solution. Text is four blocks of four."""

import itertools
import random


def _full_grids() -> list[str]:
    """Every valid grid as 16 digits, row by row, in lexical order."""
    rows = ["".join(row) for row in itertools.permutations("1234")]
    grids: list[str] = []

    def extend(grid: list[str]) -> None:
        if len(grid) == 4:
            grids.append("".join(grid))
            return
        for row in rows:
            columns_differ = all(row[c] != above[c] for above in grid for c in range(4))
            if len(grid) % 2 == 1:  # this row completes two boxes with the row above
                above = grid[-1]
                boxes_differ = all(len({*row[c : c + 2], *above[c : c + 2]}) == 4 for c in (0, 2))
            else:
                boxes_differ = True
            if columns_differ and boxes_differ:
                extend([*grid, row])

    extend([])
    return grids


GRIDS = _full_grids()


def spaced(grid: str) -> str:
    """`1234341221434321` -> `1234 3412 2143 4321`."""
    return " ".join(grid[start : start + 4] for start in range(0, 16, 4))


def _solutions(cells: list[str]) -> int:
    return sum(
        all(cell in ("_", digit) for cell, digit in zip(cells, grid, strict=True)) for grid in GRIDS
    )


def puzzle(rng: random.Random, blanks: int) -> tuple[str, str]:
    """(puzzle, solution), at most `blanks` cells blanked so that one solution remains."""
    grid = rng.choice(GRIDS)
    cells = list(grid)
    for cell in rng.sample(range(16), 16):
        if cells.count("_") == blanks:
            break
        cells[cell] = "_"
        if _solutions(cells) > 1:
            cells[cell] = grid[cell]
    return spaced("".join(cells)), spaced(grid)
