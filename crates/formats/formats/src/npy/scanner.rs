//! The dictionary in a header.

use super::Problem;

const MAX_RANK: usize = 64;

/// The three keys.
pub(super) struct Fields<'a> {
    pub(super) descr: &'a str,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<usize>,
}

/// The rest of the header.
pub(super) struct Scanner<'a>(&'a str);

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self(text.trim())
    }

    pub(super) fn fields(mut self) -> Result<Fields<'a>, Problem> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.take("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key {
                "descr" => descr = Some(self.descr()?),
                "fortran_order" => fortran_order = Some(self.boolean()?),
                "shape" => shape = Some(self.shape()?),
                other => {
                    let other = shorten(other);
                    return Err(Problem::Header(format!("it has an unknown key `{other}`")));
                }
            }
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        let missing = |key: &str| Problem::Header(format!("it has no `{key}`"));
        Ok(Fields {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(token);
        if let Some(rest) = rest {
            self.0 = rest;
        }
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), Problem> {
        if self.take(token) {
            return Ok(());
        }
        let found: String = self.0.trim_start().chars().take(16).collect();
        Err(Problem::Header(format!(
            "it has `{found}` where `{token}` belongs"
        )))
    }

    fn string(&mut self) -> Result<&'a str, Problem> {
        let quote = if self.take("'") { '\'' } else { '"' };
        if quote == '"' {
            self.expect("\"")?;
        }
        let parts = self.0.split_once(quote);
        let (text, rest) = parts.ok_or_else(|| Problem::Header("a string is open".to_owned()))?;
        self.0 = rest;
        Ok(text)
    }

    fn descr(&mut self) -> Result<&'a str, Problem> {
        let text = self.0.trim_start();
        if text.starts_with('[') {
            let end = text.rfind(']').map_or(text.len(), |end| end + 1);
            return Err(Problem::Structured(shorten(&text[..end])));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool, Problem> {
        if self.take("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    fn shape(&mut self) -> Result<Vec<usize>, Problem> {
        self.expect("(")?;
        let mut shape = Vec::new();
        while !self.take(")") {
            shape.push(self.integer()?);
            if shape.len() > MAX_RANK {
                let reason = format!("its shape has more than {MAX_RANK} dimensions");
                return Err(Problem::Header(reason));
            }
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }

    fn integer(&mut self) -> Result<usize, Problem> {
        let text = self.0.trim_start();
        let end = text.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
        // As Python 2 wrote it.
        self.0 = rest.strip_prefix('L').unwrap_or(rest);
        let wrong = |_| Problem::Header(format!("its shape has `{}`, not a size", shorten(text)));
        digits.parse().map_err(wrong)
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(48).collect()
}
