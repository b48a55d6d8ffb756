//! Columns of neighbouring lines.

use super::layout::{Step, WIDTH, flat_width};

/// A line that may be aligned with its neighbours: its cells, and the blanks before each.
#[derive(Debug)]
pub(super) struct Row {
    pub cells: Vec<Cell>,
    /// It must not be aligned.
    pub single: bool,
    /// If it is too long, each cell from the third on gets a line.
    pub clauses: bool,
}

/// A part of a line.
#[derive(Default, Debug)]
pub(super) struct Cell {
    pub steps: Vec<Step>,
    /// Blanks between the column before and this one.
    pub gap: usize,
}

/// Groups larger than this are not tried row by row.
const ROWS: usize = 200;

/// Puts the cells of each row together, in columns where they fit. A row that takes several lines
/// ends the columns, unless its lines are clauses.
///
/// A row that is too long for all the columns keeps only the first few. The longest gives way
/// first, so that it does not spoil the others.
pub(super) fn align(rows: Vec<Row>, indent: usize) -> Vec<Vec<Step>> {
    let mut lines = Vec::with_capacity(rows.len());
    let mut group = Vec::new();
    for row in rows {
        let widths: Vec<_> = row.cells.iter().map(|cell| flat_width(&cell.steps)).collect();
        let width = padded(&row, &widths, &[], 0);
        let long = width.is_none_or(|width| indent + width > WIDTH);
        let ends = row.single || (long && !row.clauses);
        group.push(row);
        if ends {
            lines.extend(align_group(std::mem::take(&mut group), indent));
        }
    }
    lines.extend(align_group(group, indent));
    lines
}

/// Rows that share columns.
fn align_group(rows: Vec<Row>, indent: usize) -> Vec<Vec<Step>> {
    let widths: Vec<Vec<Option<usize>>> = rows
        .iter()
        .map(|row| row.cells.iter().map(|cell| flat_width(&cell.steps)).collect())
        .collect();
    let alone = |at: usize| padded(&rows[at], &widths[at], &[], 0);
    let mut levels: Vec<usize> = (0..rows.len())
        .map(|at| match alone(at) {
            _ if rows[at].single => 0,
            Some(width) if indent + width <= WIDTH => rows[at].cells.len(),
            _ => usize::from(widths[at].first().is_some_and(Option::is_some)),
        })
        .collect();
    let columns = loop {
        let columns = columns(&widths, &levels);
        let too_long = |at: &usize| {
            let width = padded(&rows[*at], &widths[*at], &columns, levels[*at]);
            let flat = alone(*at).is_some_and(|width| indent + width <= WIDTH);
            flat && levels[*at] > 0 && width.is_some_and(|width| indent + width > WIDTH)
        };
        let long: Vec<usize> = (0..rows.len()).filter(too_long).collect();
        let Some(longest) = long.iter().copied().max_by_key(|at| (alone(*at), *at)) else {
            break columns;
        };
        let shorten = if rows.len() > ROWS { long } else { vec![longest] };
        for at in shorten {
            levels[at] -= 1;
        }
    };
    rows.into_iter()
        .zip(widths)
        .zip(levels)
        .map(|((row, widths), level)| {
            let alone = padded(&row, &widths, &[], 0);
            let fits = alone.is_some_and(|width| indent + width <= WIDTH);
            let head = widths.iter().take(2).copied().sum::<Option<usize>>();
            let head_fits = head.is_some_and(|width| indent + width < WIDTH);
            let split = row.clauses && row.cells.len() > 2 && !fits && head_fits;
            join(row, &widths, &columns, level, split)
        })
        .collect()
}

/// The widths of the columns, from the rows that keep them.
fn columns(widths: &[Vec<Option<usize>>], levels: &[usize]) -> Vec<usize> {
    let mut columns = Vec::new();
    for (row, level) in widths.iter().zip(levels) {
        columns.resize(columns.len().max(row.len()), 0);
        for (column, width) in columns.iter_mut().zip(row).take(*level) {
            *column = (*column).max(width.unwrap_or(0));
        }
    }
    columns
}

/// Blanks before the next cell, and whether the cell takes part at all: one that no row has takes
/// no room.
fn gap(cell: &Cell, column: Option<usize>) -> usize {
    if cell.steps.is_empty() && column.unwrap_or(0) == 0 { 0 } else { cell.gap }
}

/// Width of a row with its first `level` cells as wide as the columns.
fn padded(row: &Row, widths: &[Option<usize>], columns: &[usize], level: usize) -> Option<usize> {
    let (mut total, mut end) = (0, 0);
    for (at, (cell, width)) in row.cells.iter().zip(widths).enumerate() {
        let column = if at < level { columns.get(at).copied() } else { None };
        let width = (*width)?;
        total += gap(cell, column);
        if width > 0 {
            end = total + width;
        }
        total += column.unwrap_or(width);
    }
    Some(end)
}

/// A row with its first `level` cells as wide as the columns; its clauses may each get a line.
fn join(
    row: Row,
    widths: &[Option<usize>],
    columns: &[usize],
    level: usize,
    split: bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    if split {
        steps.extend([Step::Open, Step::Break, Step::Indent]);
    }
    let mut blanks = 0;
    for (at, (cell, width)) in row.cells.into_iter().zip(widths).enumerate() {
        let column = if at < level { columns.get(at).copied() } else { None };
        blanks += gap(&cell, column);
        if !cell.steps.is_empty() {
            if split && at >= 2 {
                blanks = 0;
                steps.push(Step::Line { blank: true });
            } else if blanks > 0 {
                steps.push(Step::Spaces(std::mem::take(&mut blanks)));
            }
            steps.extend(cell.steps);
        }
        if let (Some(column), Some(width)) = (column, width) {
            blanks += column.saturating_sub(*width);
        }
    }
    if split {
        steps.extend([Step::Dedent, Step::Close]);
    }
    steps
}
