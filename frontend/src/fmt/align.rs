//! Columns of neighbouring lines.

use super::layout::{Step, WIDTH, flat_width};

/// A line that may be aligned with its neighbours: its cells, and the blanks before each.
#[derive(Debug)]
pub(super) struct Row {
    pub cells: Vec<Cell>,
    /// It must not be aligned.
    pub single: bool,
}

/// A part of a line.
#[derive(Default, Debug)]
pub(super) struct Cell {
    pub steps: Vec<Step>,
    /// Blanks between the column before and this one.
    pub gap: usize,
}

/// Puts the cells of each row together, in columns where they fit.
pub(super) fn align(rows: Vec<Row>, indent: usize) -> Vec<Vec<Step>> {
    let widths: Vec<Option<Vec<usize>>> = rows.iter().map(|row| measure(row, indent)).collect();
    let count = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let mut columns = vec![0; count];
    for row in widths.iter().flatten() {
        for (column, width) in columns.iter_mut().zip(row) {
            *column = (*column).max(*width);
        }
    }
    // All columns if that fits, else only the first, else none.
    let levels = [count, 1, 0];
    let fit = |level: &usize| {
        rows.iter().zip(&widths).all(|(row, widths)| {
            let Some(widths) = widths else { return true };
            indent + padded(row, widths, &columns, *level) <= WIDTH
        })
    };
    let level = levels.into_iter().find(fit).unwrap_or(0);
    rows.into_iter()
        .zip(widths)
        .map(|(row, widths)| match widths {
            Some(widths) => join(row, &widths, &columns, level),
            None => join(row, &[], &columns, 0),
        })
        .collect()
}

/// Widths of the cells, if the row fits on a line.
fn measure(row: &Row, indent: usize) -> Option<Vec<usize>> {
    if row.single {
        return None;
    }
    let widths: Vec<usize> =
        row.cells.iter().map(|cell| flat_width(&cell.steps)).collect::<Option<_>>()?;
    (indent + padded(row, &widths, &[], 0) <= WIDTH).then_some(widths)
}

fn padded(row: &Row, widths: &[usize], columns: &[usize], level: usize) -> usize {
    let mut total = 0;
    let mut end = 0;
    for (at, (cell, width)) in row.cells.iter().zip(widths).enumerate() {
        let column = if at < level { columns.get(at).copied() } else { None };
        let gap = if *width == 0 && column.is_none() { 0 } else { cell.gap };
        if *width > 0 {
            end = total + gap + width;
        }
        total += gap + column.unwrap_or(*width);
    }
    end
}

fn join(row: Row, widths: &[usize], columns: &[usize], level: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut blanks = 0;
    for (at, cell) in row.cells.into_iter().enumerate() {
        let column = if at < level { columns.get(at).copied() } else { None };
        // A column that no row has takes no room.
        let absent = cell.steps.is_empty();
        if !absent || column.is_some_and(|column| column > 0) {
            blanks += cell.gap;
        }
        if !absent {
            if blanks > 0 {
                steps.push(Step::Spaces(blanks));
                blanks = 0;
            }
            steps.extend(cell.steps);
        }
        if let Some(column) = column {
            blanks += column - widths.get(at).copied().unwrap_or(0);
        }
    }
    steps
}
