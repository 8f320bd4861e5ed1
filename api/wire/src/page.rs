//! Lists in pages, one scheme for all: `limit` says how many, `next` of a page is `after` of the one behind it.

use serde::Deserialize;
use sextant_types::Code;

use crate::problem::Problem;

/// Most entries of a page.
pub const MOST: u32 = 1000;

/// A part of a list, and where the next one begins.
pub struct Page<T> {
    /// In the order of the list.
    pub items: Vec<T>,
    /// The `after` of the page behind it; `None` of the last one.
    pub next: Option<String>,
}

/// Which part of a list is wanted, of one that takes no other parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageParams {
    after: Option<String>,
    limit: Option<u32>,
}

/// The number of entries that is asked for, which must be one that can be had.
pub fn limit(given: Option<u32>) -> Result<Option<u32>, Problem> {
    match given {
        Some(limit) if !(1..=MOST).contains(&limit) => {
            let detail = format!("`limit` is `{limit}`: it must be 1 to {MOST}");
            Err(Problem::new(Code::InvalidRequest, detail).field("limit"))
        }
        given => Ok(given),
    }
}

/// The page behind `after` of a list that is sorted by `name`; all of the rest where no limit is given.
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

/// Cuts one entry too many off, which told that there is a next page.
pub fn cut_off<T>(mut items: Vec<T>, most: u32, name: impl Fn(&T) -> String) -> Page<T> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let more = items.len() > most;
    items.truncate(most);
    let next = items.last().filter(|_| more).map(name);
    Page { items, next }
}

// === impl PageParams ===

impl PageParams {
    /// That part of a list that is sorted by `name`.
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
        // What was deleted in between still says where to go on.
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
