//! Plain text tables. The first column is aligned to the left, and numbers to the right.

use std::fmt;

/// A table: a heading and rows of cells.
pub struct Table {
    rows: Vec<Vec<String>>,
    left: Vec<usize>,
}

impl Table {
    /// Creates a table with its heading.
    pub fn new<S: Into<String>>(heading: impl IntoIterator<Item = S>) -> Self {
        Table { rows: vec![heading.into_iter().map(Into::into).collect()], left: vec![0] }
    }

    /// Aligns one more column to the left, which has text.
    pub fn left(mut self, column: usize) -> Self {
        self.left.push(column);
        self
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cell = |(column, (text, width)): (usize, (&String, &usize))| {
            if self.left.contains(&column) { format!("{text:<width$}") } else { format!("{text:>width$}") }
        };
        row.iter().zip(widths).enumerate().map(cell).collect::<Vec<_>>().join("  ")
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(move |row| row.get(column)).map(|cell| cell.chars().count())
        };
        (0..columns).map(|column| width(column).max().unwrap_or(0)).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (number, row) in self.rows.iter().enumerate() {
            writeln!(f, "{}", self.line(row, &widths).trim_end())?;
            if number == 0 {
                writeln!(f, "{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)))?;
            }
        }
        Ok(())
    }
}

/// Formats a count with commas between thousands.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or("")).collect();
    let sign = if number < 0 { "-" } else { "" };
    sign.to_owned() + &groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["name", "rounds"]);
        table.row(["local", "12"]);
        assert_eq!(table.to_string(), "name   rounds\n-------------\nlocal      12\n");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, -1_234_567].map(count), ["0", "999", "1,000", "-1,234,567"]);
    }
}
