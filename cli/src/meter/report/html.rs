//! Text of a page.

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a table. The first cell of each row is a heading, and numbers are aligned to the right.
pub fn table(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let heading: String = heading.iter().map(|text| format!("<th>{}</th>", escape(text))).collect();
    let rows: String = rows.into_iter().map(row).collect();
    format!("<div class=wide><table><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table></div>\n")
}

fn row(cells: Vec<String>) -> String {
    let cell = |(place, text): (usize, String)| match (place, is_number(&text)) {
        (0, _) => format!("<th scope=row>{}</th>", escape(&text)),
        (_, true) => format!("<td class=number>{}</td>", escape(&text)),
        _ => format!("<td>{}</td>", escape(&text)),
    };
    format!("<tr>{}</tr>", cells.into_iter().enumerate().map(cell).collect::<String>())
}

fn is_number(text: &str) -> bool {
    let number = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || ",.xkMG%".contains(c));
    number || text == "–"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        let html =
            table(&["a<b"], [vec!["Cell<T>".to_owned(), "1,234.5".to_owned(), "down_read+0x1".to_owned()]]);
        assert!(html.contains("a&lt;b") && html.contains("Cell&lt;T&gt;"), "{html}");
        assert!(html.contains("<td class=number>1,234.5</td>") && html.contains("<td>down_read"), "{html}");
    }
}
