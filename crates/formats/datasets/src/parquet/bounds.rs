//! Limits the memory that rows take.
//!
//! A few bytes of a page may stand for any number of values: levels and values are written in runs, and each value may
//! be a long text of a dictionary. So each page is examined before its values are decoded: its size, and the greatest
//! size of the longest row of the group. Runs are counted without expanding them. Texts may also begin as the text
//! before them does (`DELTA_BYTE_ARRAY`): such a page counts with what its texts take.
//!
//! Texts that are not in a dictionary keep their page in memory until the rows that are decoded at once are there, so
//! the pages of these rows are counted together.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ::parquet::{
    basic::{Encoding, Type},
    bloom_filter::Sbbf,
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        reader::{FileReader, RowGroupReader},
    },
    record::reader::RowIter,
    schema::types::{ColumnDescriptor, SchemaDescriptor, Type as SchemaType},
};

mod lengths;
mod levels;

use levels::Records;

/// Most bytes of pages and dictionaries that are held at once, of all columns.
const MAX_PAGES_BYTES: u64 = 2 << 30;

/// Most bytes of the longest row, each column with its longest value.
const MAX_ROW_BYTES: u64 = 1 << 30;

/// Bytes of memory of a row's element in addition to its text: as a value, with its levels, and as JSON.
const ELEMENT_BYTES: u64 = 64;

/// Bytes of memory of a dictionary's text in addition to its bytes; numbers take no more than in the file.
const DICTIONARY_TEXT_BYTES: u64 = 32;

/// Values that are decoded at once, of all columns.
const VALUES_AT_ONCE: usize = 1 << 20;

/// Most rows that are decoded at once.
const ROWS_AT_ONCE: usize = 1024;

/// Rows of a file that are decoded at once: one if a row may have any number of elements.
pub(super) fn rows_at_once(schema: &SchemaDescriptor) -> usize {
    let columns = schema.columns();
    match columns.iter().any(|column| column.max_rep_level() > 0) {
        true => 1,
        false => (VALUES_AT_ONCE / columns.len().max(1)).clamp(1, ROWS_AT_ONCE),
    }
}

/// A file whose rows are refused if they take too much memory.
pub(super) struct Bounded<R>(pub(super) R);

/// A group of its rows.
struct Group<'a> {
    group: Box<dyn RowGroupReader + 'a>,
    rows_at_once: u64,
    taken: Arc<Taken>,
}

/// Memory of all columns of a group, bytes.
#[derive(Debug, Default)]
struct Taken {
    pages: AtomicU64,
    row: AtomicU64,
}

/// The pages of a column of a group.
struct Pages {
    pages: Box<dyn PageReader>,
    column: Column,
    taken: Arc<Taken>,
}

/// What is known of a column so far.
struct Column {
    max_level: i16,
    max_definition_level: i16,
    physical_type: Type,
    rows_at_once: u64,
    /// Bytes of the present page, and of those that are kept.
    page: u64,
    kept: Kept,
    /// Bytes of the dictionary.
    dictionary: u64,
    /// Bytes of the longest text in the dictionary.
    longest_text: u64,
    records: Records,
    /// Its share in [`Taken`]: pages, and its part of a row.
    counted: (u64, u64),
}

/// The last pages of a column whose texts may still be in memory.
#[derive(Default)]
struct Kept {
    /// The values and the bytes of each.
    pages: VecDeque<(u64, u64)>,
    /// Values of all.
    values: u64,
    /// Bytes of all.
    bytes: u64,
}

// === impl Bounded ===

impl<R: FileReader> FileReader for Bounded<R> {
    fn metadata(&self) -> &ParquetMetaData {
        self.0.metadata()
    }

    fn num_row_groups(&self) -> usize {
        self.0.num_row_groups()
    }

    fn get_row_group(&self, i: usize) -> Result<Box<dyn RowGroupReader + '_>, ParquetError> {
        Ok(Box::new(Group {
            group: self.0.get_row_group(i)?,
            rows_at_once: rows_at_once(self.metadata().file_metadata().schema_descr()) as u64,
            taken: Arc::default(),
        }))
    }

    fn get_row_iter(&self, projection: Option<SchemaType>) -> Result<RowIter<'_>, ParquetError> {
        RowIter::from_file(projection, self)
    }
}

// === impl Group ===

impl RowGroupReader for Group<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.group.metadata()
    }

    fn num_columns(&self) -> usize {
        self.group.num_columns()
    }

    fn get_column_page_reader(&self, i: usize) -> Result<Box<dyn PageReader>, ParquetError> {
        Ok(Box::new(Pages {
            pages: self.group.get_column_page_reader(i)?,
            column: Column::new(&self.metadata().schema_descr().column(i), self.rows_at_once),
            taken: Arc::clone(&self.taken),
        }))
    }

    fn get_column_bloom_filter(&self, i: usize) -> Option<&Sbbf> {
        self.group.get_column_bloom_filter(i)
    }

    fn get_row_iter(&self, projection: Option<SchemaType>) -> Result<RowIter<'_>, ParquetError> {
        RowIter::from_row_group(projection, self)
    }
}

// === impl Pages ===

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.column.look_at(page)?;
            self.column.count(&self.taken)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

// === impl Column ===

impl Column {
    fn new(column: &ColumnDescriptor, rows_at_once: u64) -> Self {
        Self {
            max_level: column.max_rep_level(),
            max_definition_level: column.max_def_level(),
            physical_type: column.physical_type(),
            rows_at_once,
            page: 0,
            kept: Kept::default(),
            dictionary: 0,
            longest_text: 0,
            records: Records::default(),
            counted: (0, 0),
        }
    }

    fn look_at(&mut self, page: &Page) -> Result<(), ParquetError> {
        let (bytes, values) = (page.buffer(), u64::from(page.num_values()));
        let size = bytes.len() as u64;
        if page.is_dictionary_page() {
            self.dictionary = size;
            if self.physical_type == Type::BYTE_ARRAY {
                self.dictionary += values * DICTIONARY_TEXT_BYTES;
                self.longest_text = longest_text(bytes);
            }
            return Ok(());
        }
        self.page = size.saturating_add(self.texts(page)?);
        self.kept.trim(self.rows_at_once.max(self.records.open()));
        if self.is_kept(page) {
            self.kept.add(values, self.page);
            self.page = self.kept.bytes;
        }
        match levels_of(page) {
            _ if self.max_level == 0 => self.records.add(0, values),
            Some(levels) => self.records.count(levels, self.max_level, values),
            // This encoding of levels is obsolete: the values may be one row.
            None => self.records.add(1, values),
        }
        Ok(())
    }

    /// Bytes of memory that the texts of a page take in addition to the page.
    fn texts(&self, page: &Page) -> Result<u64, ParquetError> {
        let most = u64::from(page.num_values());
        let begin_alike = page.encoding() == Encoding::DELTA_BYTE_ARRAY;
        if !begin_alike && page.encoding() != Encoding::DELTA_LENGTH_BYTE_ARRAY {
            return Ok(0);
        }
        let broken = || ParquetError::General("a page has broken lengths of texts".to_owned());
        let mut values = self.values_of(page).ok_or_else(broken)?;
        let mut sum = 0;
        if begin_alike {
            let within = (most, MAX_PAGES_BYTES);
            sum = lengths::take_sum(&mut values, within).ok_or_else(broken)?;
        }
        if sum > MAX_PAGES_BYTES {
            return Ok(sum);
        }
        Ok(sum + lengths::memory(values, most).ok_or_else(broken)?)
    }

    /// Whether values that are decoded may keep a page in memory.
    fn is_kept(&self, page: &Page) -> bool {
        matches!(
            self.physical_type,
            Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY
        ) && page.num_values() > 0
    }

    /// The values of a data page, which follow its levels; `None` if it is cut off.
    fn values_of<'a>(&self, page: &'a Page) -> Option<&'a [u8]> {
        match page {
            Page::DataPage {
                buf,
                num_values,
                def_level_encoding,
                rep_level_encoding,
                ..
            } => {
                let repeated = (self.max_level, *rep_level_encoding);
                let rest = after_levels(buf, repeated, *num_values)?;
                let defined = (self.max_definition_level, *def_level_encoding);
                after_levels(rest, defined, *num_values)
            }
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => buf.get(*rep_levels_byte_len as usize + *def_levels_byte_len as usize..),
            Page::DictionaryPage { .. } => None,
        }
    }

    /// Replaces the column's share by the present one; fails if the sum of all columns is too large.
    fn count(&mut self, taken: &Taken) -> Result<(), ParquetError> {
        let element = ELEMENT_BYTES + self.longest_text;
        let row = self.records.longest().saturating_mul(element);
        let (pages_before, row_before) = self.counted;
        // A share that is too large alone is limited, so that no sum overflows.
        let (pages, row) = (
            (self.page + self.dictionary).min(MAX_PAGES_BYTES + 1),
            row.min(MAX_ROW_BYTES + 1),
        );
        self.counted = (pages, row);
        if replace(&taken.pages, pages_before, pages) > MAX_PAGES_BYTES {
            let why = "its pages take over 2 GiB of memory at once: write smaller groups of rows";
            return Err(ParquetError::General(why.to_owned()));
        }
        if replace(&taken.row, row_before, row) > MAX_ROW_BYTES {
            let why = "a row takes over 1 GiB of memory: write fewer elements a row, and long texts without a dictionary";
            return Err(ParquetError::General(why.to_owned()));
        }
        Ok(())
    }
}

// === impl Kept ===

impl Kept {
    fn add(&mut self, values: u64, bytes: u64) {
        self.pages.push_back((values, bytes));
        self.values += values;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Lets the pages go that are before the last `values` values.
    fn trim(&mut self, values: u64) {
        while let Some(&(first, bytes)) = self.pages.front()
            && self.values - first >= values
        {
            self.pages.pop_front();
            self.values -= first;
            self.bytes -= bytes;
        }
    }
}

/// Replaces a part of a sum, and returns the sum.
fn replace(sum: &AtomicU64, before: u64, now: u64) -> u64 {
    sum.fetch_sub(before, Ordering::Relaxed);
    sum.fetch_add(now, Ordering::Relaxed) + now
}

/// The levels of repetition of a page, in runs; `None` if they have another encoding.
fn levels_of(page: &Page) -> Option<&[u8]> {
    match page {
        Page::DataPage {
            buf,
            rep_level_encoding: Encoding::RLE,
            ..
        } => {
            let (length, rest) = buf.split_first_chunk::<4>()?;
            let length = u32::from_le_bytes(*length) as usize;
            // The decoder refuses levels that are cut off.
            Some(rest.get(..length).unwrap_or(rest))
        }
        Page::DataPageV2 {
            buf,
            rep_levels_byte_len,
            ..
        } => Some(buf.get(..*rep_levels_byte_len as usize).unwrap_or(buf)),
        Page::DataPage { .. } | Page::DictionaryPage { .. } => None,
    }
}

/// What follows the levels at the front of a page of the first version; `None` if they are cut off.
fn after_levels(page: &[u8], (max_level, encoding): (i16, Encoding), values: u32) -> Option<&[u8]> {
    if max_level == 0 {
        return Some(page);
    }
    if encoding == Encoding::RLE {
        let (length, rest) = page.split_first_chunk::<4>()?;
        return rest.get(u32::from_le_bytes(*length) as usize..);
    }
    page.get((values as usize * levels::bits(max_level)).div_ceil(8)..)
}

/// Bytes of the longest text of a dictionary: each text follows its length.
fn longest_text(mut dictionary: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = dictionary.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        let Some(rest) = rest.get(length as usize..) else {
            break;
        };
        longest = longest.max(u64::from(length));
        dictionary = rest;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_while_their_values_may_be_in_memory() {
        let mut kept = Kept::default();
        for (values, bytes) in [(3, 100), (2, 10), (1, 1)] {
            kept.add(values, bytes);
        }
        for (values, bytes) in [(4, 111), (3, 11), (2, 11), (1, 1), (1, 1)] {
            kept.trim(values);
            assert_eq!(kept.bytes, bytes, "{values}");
        }
    }
}
