//! Strings of a tensor: one buffer, and the position in it where each string ends, as in Arrow's binary arrays.
//!
//! An element takes four bytes beside its text. A list of separate strings takes thirty and more, so a body of empty
//! strings would grow to ten times its size.

use std::{fmt, ops::Range};

use bytes::Bytes;

use crate::tensor::InvalidTensor;

/// Bytes of a position.
const PLACE_BYTES: usize = size_of::<u32>();

/// Row-major strings. Cloning and cutting share their bytes.
#[derive(Clone)]
pub struct Texts {
    /// The texts, one after the other.
    bytes: Bytes,
    /// Little-endian 32-bit positions: where the first text begins, and where each text ends. They count from the
    /// beginning of the buffer from which these texts were cut.
    places: Bytes,
}

/// Collects strings one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextsBuilder {
    bytes: Vec<u8>,
    places: Vec<u8>,
}

// === impl Texts ===

impl Texts {
    /// Bytes that each string takes beside its text.
    pub const ELEMENT_BYTES: usize = PLACE_BYTES;

    /// Collects these strings.
    ///
    /// # Errors
    /// If they have 4 GiB or more.
    pub fn collect<T: AsRef<[u8]>>(
        texts: impl IntoIterator<Item = T>,
    ) -> Result<Self, InvalidTensor> {
        let texts = texts.into_iter();
        let mut built = TextsBuilder::with_capacity(texts.size_hint().0, 0);
        for text in texts {
            built.push(text.as_ref())?;
        }
        Ok(built.finish())
    }

    /// One string, which is shared.
    ///
    /// # Errors
    /// If it has 4 GiB or more.
    pub fn one(text: Bytes) -> Result<Self, InvalidTensor> {
        let end = place(text.len())?;
        let places = [0, end].map(u32::to_le_bytes).concat();
        Ok(Self {
            bytes: text,
            places: places.into(),
        })
    }

    /// This many empty strings.
    pub fn empty(count: usize) -> Self {
        Self {
            bytes: Bytes::new(),
            places: vec![0; (count + 1) * PLACE_BYTES].into(),
        }
    }

    /// The inverse of [`Texts::bytes`] and [`Texts::places`]; `None` if they do not fit each other.
    pub fn from_parts(bytes: Bytes, places: Bytes) -> Option<Self> {
        let (all, rest) = places.as_chunks::<PLACE_BYTES>();
        let is_sorted = all.is_sorted_by_key(|place| u32::from_le_bytes(*place));
        let texts =
            (!all.is_empty() && rest.is_empty() && is_sorted).then_some(Self { bytes, places })?;
        (texts.range(0, texts.len()).len() == texts.bytes.len()).then_some(texts)
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.places.len() / PLACE_BYTES - 1
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All texts, one after the other.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Little-endian 32-bit positions: where the first text begins, which need not be 0, and where each text ends.
    pub fn places(&self) -> &Bytes {
        &self.places
    }

    /// Bytes that they occupy.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + self.places.len()
    }

    /// The text with this number.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        (index < self.len()).then(|| &self.bytes[self.range(index, index + 1)])
    }

    /// The texts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|index| &self.bytes[self.range(index, index + 1)])
    }

    /// The texts with these numbers, shared.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn slice(&self, numbers: Range<usize>) -> Self {
        let range = self.range(numbers.start, numbers.end);
        let places = numbers.start * PLACE_BYTES..(numbers.end + 1) * PLACE_BYTES;
        Self {
            bytes: self.bytes.slice(range),
            places: self.places.slice(places),
        }
    }

    /// The range of the texts from one number up to another.
    fn range(&self, start: usize, end: usize) -> Range<usize> {
        let first = self.place(0);
        self.place(start) - first..self.place(end) - first
    }

    fn place(&self, number: usize) -> usize {
        let (places, _) = self.places.as_chunks::<PLACE_BYTES>();
        u32::from_le_bytes(places[number]) as usize
    }
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.bytes == other.bytes && self.iter().eq(other.iter())
    }
}

impl Eq for Texts {}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.iter().map(String::from_utf8_lossy);
        f.debug_list().entries(texts).finish()
    }
}

// === impl TextsBuilder ===

impl Default for TextsBuilder {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl TextsBuilder {
    /// Reserves room for this many strings with this many bytes together.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        let mut places = Vec::with_capacity((count + 1) * PLACE_BYTES);
        places.extend_from_slice(&[0; PLACE_BYTES]);
        Self {
            bytes: Vec::with_capacity(bytes),
            places,
        }
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.places.len() / PLACE_BYTES - 1
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that they occupy.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + self.places.len()
    }

    /// Appends a string.
    ///
    /// # Errors
    /// If all together have 4 GiB or more. Nothing is then appended.
    pub fn push(&mut self, text: &[u8]) -> Result<(), InvalidTensor> {
        place(self.bytes.len() + text.len())?;
        self.bytes.extend_from_slice(text);
        self.end()
    }

    /// Appends all of these.
    ///
    /// # Errors
    /// If all together have 4 GiB or more.
    pub fn extend(&mut self, texts: &Texts) -> Result<(), InvalidTensor> {
        let before = self.bytes.len();
        place(before + texts.bytes.len())?;
        self.bytes.extend_from_slice(&texts.bytes);
        let ends = (1..=texts.len()).map(|number| before + texts.range(0, number).len());
        ends.map(place).try_for_each(|end| {
            self.places.extend_from_slice(&end?.to_le_bytes());
            Ok(())
        })
    }

    /// The texts in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (places, _) = self.places.as_chunks::<PLACE_BYTES>();
        let place = |at: &[u8; PLACE_BYTES]| u32::from_le_bytes(*at) as usize;
        let pairs = places.windows(2);
        pairs.map(move |pair| &self.bytes[place(&pair[0])..place(&pair[1])])
    }

    /// The text that is being written, after all others. [`TextsBuilder::end`] ends it.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the text that was written.
    ///
    /// # Errors
    /// If all together have 4 GiB or more.
    pub fn end(&mut self) -> Result<(), InvalidTensor> {
        let end = place(self.bytes.len())?;
        self.places.extend_from_slice(&end.to_le_bytes());
        Ok(())
    }

    /// The strings.
    pub fn finish(self) -> Texts {
        Texts {
            bytes: self.bytes.into(),
            places: self.places.into(),
        }
    }
}

fn place(bytes: usize) -> Result<u32, InvalidTensor> {
    u32::try_from(bytes).map_err(|_| InvalidTensor::TooLarge(vec![bytes]))
}
