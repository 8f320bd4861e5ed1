//! The source of queries: one stream for each class, or a recording.

use std::sync::Arc;

use sextant_schedule::Nanos;

use super::Setting;
use crate::{
    Arrival, Error, Source,
    trace::Trace,
    workload::{Stream, open_loop},
};

/// A recording whose models are classes.
#[derive(Debug)]
struct TraceReplay {
    trace: Arc<Trace>,
    /// By model of the recording.
    classes: Vec<u32>,
    next: usize,
}

/// The queries of a setting; the model of an arrival is the position of its class.
pub(super) fn source(setting: &Setting) -> Result<Box<dyn Source>, Error> {
    if let Some(trace) = &setting.recorded {
        return Ok(Box::new(TraceReplay::new(trace, setting)?));
    }
    let stream = |(model, class): (u32, &super::Class)| Stream {
        model,
        gaps: class.gaps,
        rate: class.rate.clone(),
    };
    let streams: Vec<Stream> = (0..).zip(&setting.classes).map(stream).collect();
    open_loop(&streams, setting.seed)
}

// === impl TraceReplay ===

impl TraceReplay {
    fn new(trace: &Arc<Trace>, setting: &Setting) -> Result<Self, Error> {
        let class_of = |name: &String| {
            let named = |of: &super::Class| setting.applications[of.application].name == *name;
            let at = setting.classes.iter().position(named);
            at.map(|at| at as u32).ok_or_else(|| {
                Error::Setting(format!(
                    "the recorded queries name `{name}`, which has no class"
                ))
            })
        };
        Ok(Self {
            classes: trace
                .models
                .iter()
                .map(class_of)
                .collect::<Result<_, _>>()?,
            trace: Arc::clone(trace),
            next: 0,
        })
    }
}

impl Source for TraceReplay {
    fn peek(&mut self) -> Option<Nanos> {
        let (at, _) = self.trace.requests.get(self.next)?;
        Some(*at)
    }

    fn next(&mut self) -> Arrival {
        let (at, model) = self.trace.requests[self.next];
        self.next += 1;
        Arrival {
            at,
            model: self.classes[model as usize],
            client: 0,
        }
    }
}
