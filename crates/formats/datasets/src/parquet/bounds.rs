//! Limits the memory that rows take.
//!
//! A few bytes of a page may stand for any number of values: levels and values are written in runs, and each value may
//! be a long text of a dictionary. So each page is examined before its values are decoded: its size, and the greatest
//! size of the longest row of the group. Runs are counted without expanding them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
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
    physical_type: Type,
    /// Bytes of the present page.
    page: u64,
    /// Bytes of the dictionary.
    dictionary: u64,
    /// Bytes of the longest text in the dictionary.
    longest_text: u64,
    records: Records,
    /// Its share in [`Taken`]: pages, and its part of a row.
    counted: (u64, u64),
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
            column: Column::new(&self.metadata().schema_descr().column(i)),
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
            self.column.look_at(page);
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
    fn new(column: &ColumnDescriptor) -> Self {
        Self {
            max_level: column.max_rep_level(),
            physical_type: column.physical_type(),
            page: 0,
            dictionary: 0,
            longest_text: 0,
            records: Records::default(),
            counted: (0, 0),
        }
    }

    fn look_at(&mut self, page: &Page) {
        let (bytes, values) = (page.buffer(), u64::from(page.num_values()));
        let size = bytes.len() as u64;
        if page.is_dictionary_page() {
            self.dictionary = size;
            if self.physical_type == Type::BYTE_ARRAY {
                self.dictionary += values * DICTIONARY_TEXT_BYTES;
                self.longest_text = longest_text(bytes);
            }
            return;
        }
        self.page = size;
        match levels_of(page) {
            _ if self.max_level == 0 => self.records.add(0, values),
            Some(levels) => self.records.count(levels, self.max_level, values),
            // This encoding of levels is obsolete: the values may be one row.
            None => self.records.add(1, values),
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
