//! Long lists, a page at a time: found by a part of their names.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

/// Entries of a page.
const ON_PAGE: usize = 50;

/// Which part of a list is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ListQuery {
    /// A part of the names, in any case.
    #[serde(default)]
    pub q: String,
    /// From 1.
    #[serde(default)]
    pub page: usize,
}

/// Where a page of a list stands among the others.
#[derive(Debug, PartialEq, Eq)]
pub struct Paging {
    /// The path of the list.
    pub path: &'static str,
    pub q: String,
    pub page: usize,
    pub pages: usize,
    /// Entries on all pages.
    pub found: usize,
    /// Entries there are, found or not.
    pub all: usize,
}

impl ListQuery {
    /// The entries of the page that is asked for. A page behind the last is the last.
    pub fn select<T>(
        &self,
        path: &'static str,
        all: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> (Vec<T>, Paging) {
        let q = self.q.trim().to_lowercase();
        let total = all.len();
        let found: Vec<T> = all
            .into_iter()
            .filter(|entry| name(entry).to_lowercase().contains(&q))
            .collect();
        let pages = found.len().div_ceil(ON_PAGE).max(1);
        let page = self.page.clamp(1, pages);
        let paging = Paging {
            path,
            q: self.q.trim().to_owned(),
            page,
            pages,
            found: found.len(),
            all: total,
        };
        (
            found
                .into_iter()
                .skip((page - 1) * ON_PAGE)
                .take(ON_PAGE)
                .collect(),
            paging,
        )
    }
}

impl Paging {
    /// The query of a page.
    pub fn query(&self, page: &usize) -> String {
        format!("q={}&page={page}", encode(&self.q))
    }

    /// Whether there is something to be found.
    pub fn is_long(&self) -> bool {
        self.all > ON_PAGE / 5
    }
}

/// A name as a part of a path or of a query.
pub fn encode(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(q: &str, page: usize) -> (Vec<String>, Paging) {
        let all = (0..120).map(|number| format!("Route-{number}")).collect();
        ListQuery {
            q: q.to_owned(),
            page,
        }
        .select("/console/routes", all, |name| name)
    }

    #[test]
    fn a_list_is_shown_page_by_page() {
        let (shown, paging) = page("", 3);
        assert_eq!(
            (shown.len(), paging.page, paging.pages, paging.found),
            (20, 3, 3, 120)
        );
        assert_eq!(
            page("", 99),
            (shown, paging),
            "there is none behind the last"
        );
        assert_eq!(page("", 0).0[0], "Route-0");
    }

    #[test]
    fn a_part_of_a_name_finds_its_entries() {
        let (shown, paging) = page(" route-11 ", 1);
        assert_eq!((shown.len(), paging.all), (11, 120));
        assert_eq!(paging.query(&2), "q=route%2D11&page=2");
        assert_eq!(page("<script>", 1).0.len(), 0);
    }
}
