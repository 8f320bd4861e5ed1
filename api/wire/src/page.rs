//! Lists in pages, in one way for all: `limit` is the number of entries, and `next` of a page is `after` of the next
//! page.

use serde::Deserialize;
use sextant_types::Code;

use crate::problem::Problem;

/// Most entries of a page.
pub const MOST: u32 = 1000;

/// A page of a list, and where the next one begins.
pub struct Page<T> {
    /// The entries in the order of the list.
    pub items: Vec<T>,
    /// `after` for the next page; `None` for the last page.
    pub next: Option<String>,
}

/// The page that a request asks for, for lists without other parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageParams {
    after: Option<String>,
    limit: Option<u32>,
}

/// The limit of a request, checked against the greatest possible one.
pub fn limit(given: Option<u32>) -> Result<Option<u32>, Problem> {
    match given {
        Some(limit) if !(1..=MOST).contains(&limit) => {
            let detail = format!("`limit` is `{limit}`: it must be 1 to {MOST}");
            Err(Problem::new(Code::InvalidRequest, detail).field("limit"))
        }
        given => Ok(given),
    }
}

/// The page after `after`, of a list that is sorted by `name`; without a limit, all entries after it.
pub fn cut<T>(
    items: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> String,
    (after, given): (Option<&str>, Option<u32>),
) -> Result<Page<T>, Problem> {
    let most = limit(given)?.and_then(|limit| usize::try_from(limit).ok());
    let behind = |item: &T| after.is_none_or(|after| name(item).as_str() > after);
    let mut rest = items.into_iter().filter(behind);
    let items: Vec<T> = rest.by_ref().take(most.unwrap_or(usize::MAX)).collect();
    let more = rest.next().is_some();
    let next = items.last().filter(|_| more).map(name);
    Ok(Page { items, next })
}

/// Removes the one entry too many that shows that there is a next page.
pub fn cut_off<T>(mut items: Vec<T>, most: u32, name: impl Fn(&T) -> String) -> Page<T> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let more = items.len() > most;
    items.truncate(most);
    let next = items.last().filter(|_| more).map(name);
    Page { items, next }
}

// === impl PageParams ===

impl PageParams {
    /// The page of a list that is sorted by `name`.
    pub fn cut<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>, Problem> {
        cut(items, name, (self.after.as_deref(), self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(after: Option<&str>, limit: Option<u32>) -> (Vec<&'static str>, Option<String>) {
        let page = cut(["a", "b", "c"], |it| (*it).to_owned(), (after, limit));
        let page = page.expect("a page");
        (page.items, page.next)
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        assert_eq!(names(None, None), (vec!["a", "b", "c"], None));
        assert_eq!(names(None, Some(2)), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(names(Some("b"), Some(2)), (vec!["c"], None));
        assert_eq!(names(Some("c"), Some(2)), (vec![], None));
        assert_eq!(names(None, Some(3)), (vec!["a", "b", "c"], None));
        // A deleted entry still says where to continue.
        assert_eq!(names(Some("bb"), None), (vec!["c"], None));
    }

    #[test]
    fn a_limit_out_of_range_is_refused() {
        for wrong in [0, MOST + 1] {
            assert_eq!(
                limit(Some(wrong)).expect_err("out of range").code(),
                Code::InvalidRequest
            );
        }
    }
}
