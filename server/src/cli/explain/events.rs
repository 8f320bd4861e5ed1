//! Server-sent events, in the form in which the service sends them.

use serde_json::Value;

/// What of a stream belongs to no whole event yet.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: String,
}

// === impl Events ===

impl Events {
    /// Takes the next piece of the stream and returns the data of events that are whole now. What is no
    /// JSON is left out.
    pub fn read(&mut self, piece: &[u8]) -> Vec<Value> {
        let mut whole = Vec::new();
        for byte in piece {
            match byte {
                b'\n' => whole.extend(self.end_line()),
                _ => self.line.push(*byte),
            }
        }
        whole
    }

    fn end_line(&mut self) -> Option<Value> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            return serde_json::from_str(&std::mem::take(&mut self.data)).ok();
        }
        if let Some(data) = line.strip_prefix("data:") {
            self.data.push_str(data);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let stream = ":\n\nevent: decision\nid: 1\ndata: {\"number\":1,\"reason\":\"ü\"}\n\n\
                      event: decision\r\ndata: {\"number\":\r\ndata: 2}\r\n\r\n:\n\ndata: broken\n\n";
        let desired = [json!({"number": 1, "reason": "ü"}), json!({"number": 2})];
        for size in [1, 3, 7, stream.len()] {
            let mut events = Events::default();
            let pieces = stream.as_bytes().chunks(size);
            let read: Vec<Value> = pieces.flat_map(|piece| events.read(piece)).collect();
            assert_eq!(read, desired, "in pieces of {size}");
        }
    }
}
