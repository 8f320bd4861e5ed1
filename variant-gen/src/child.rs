//! The process that measures for another ([`crate::isolation`]): it reads orders, runs engines, and regularly gives a
//! sign of life.

use std::{
    any::Any,
    io::{self, Read, Write},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_engine::{Engine, LoadRequest, ModelFile, STACK_BYTES, WeightsFolder};
use sextant_isolation::frame;
use sextant_types::Code;

use crate::{
    generator::{
        adapt,
        calibrate::{self, Sample},
    },
    isolation::protocol::{Action, Answer, Calibrate, Head, Order, SetSummary},
    measure::{
        self, Batches, Cancel, MeasureError, Measurement, Refusal, Subject, UploadedAnswers,
    },
    memory::Baseline,
    rewriting::{RewriteFailure, RewriteReply},
    score::{CustomMetric, ScoreError},
    validation::{self, Invalid, Labels, SetRequirements, ValidationSet},
};

/// Time between two checks for a sign of life.
const BEAT: Duration = Duration::from_millis(250);

/// Carries out orders until there are no more.
///
/// # Errors
/// If the parent is gone, or breaks the protocol.
pub fn serve_measurements(
    engines: &[Arc<dyn Engine>],
    mut orders: impl Read,
    answers: impl Write + Send + 'static,
) -> io::Result<()> {
    let answers = Arc::new(Mutex::new(answers));
    let mut validation: Option<Arc<ValidationSet>> = None;
    let mut artefact = ModelFile::from(Bytes::new());
    let mut uploaded = Arc::<UploadedAnswers>::default();
    while let Some(head) = frame::read_head::<Head>(&mut orders)? {
        let file = head.validation_bytes;
        let file = file.map(|length| frame::read_whole(&mut orders, length));
        let file = file.transpose()?;
        if let Some(length) = head.artefact_bytes {
            artefact = ModelFile {
                graph: frame::read_whole(&mut orders, length)?,
                weights: head.weights.map(WeightsFolder::of_another).map(Arc::new),
            };
        }
        let beside = head.beside_bytes.iter();
        let beside = beside.map(|length| frame::read_whole(&mut orders, *length));
        let beside = beside.collect::<io::Result<Vec<_>>>()?;
        let order = head.order;
        if let Action::Rewrite(rewriting) = order.action {
            let signs = match rewriting.reads_weights() {
                true => Signs::Always,
                false => Signs::OfSteps,
            };
            let file = artefact.clone();
            let rewrite = move |_: &Cancel| {
                let (rewritten, files) = rewriting.run(&file, &beside);
                (Answer::Rewritten(rewritten), files)
            };
            let said = carry_out(rewrite, signs, &answers)?;
            say_with(&answers, &said)?;
            continue;
        }
        if !order.action.takes_set() {
            say(&answers, &Answer::Weighed(weigh(&artefact.graph)))?;
            continue;
        }
        if let (Action::RecordShapes, Some(file)) = (&order.action, &file) {
            let shapes = validation::record_shapes(file, order.limits);
            say(
                &answers,
                &shapes.map_or_else(|invalid| unfit(&invalid), Answer::RecordShapes),
            )?;
            continue;
        }
        if let Some(file) = file {
            uploaded = Arc::default();
            validation = match read(&file, &order) {
                Ok(read) => Some(Arc::new(read)),
                Err(invalid) => {
                    say(&answers, &unfit(&invalid))?;
                    continue;
                }
            };
        }
        let Some(validation) = validation.clone() else {
            return Err(io::Error::other("an order comes without a validation set"));
        };
        let work = Work {
            engines: engines.to_vec(),
            artefact: artefact.clone(),
            validation,
            uploaded: Arc::clone(&uploaded),
            order,
        };
        let said = carry_out(move |cancel| work.run(cancel), Signs::OfSteps, &answers)?;
        say_with(&answers, &said)?;
    }
    Ok(())
}

/// What a thread needs to measure.
struct Work {
    engines: Vec<Arc<dyn Engine>>,
    artefact: ModelFile,
    validation: Arc<ValidationSet>,
    uploaded: Arc<UploadedAnswers>,
    order: Order,
}

/// An answer and its files.
type AnswerWithFiles = (Answer, Vec<Bytes>);

/// When the process gives signs of life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signs {
    /// At each step, so that a step without an end is found.
    OfSteps,
    /// As long as it works: the work has an end, and its time depends on the size of the weights.
    Always,
}

/// Does the work on a thread of its own, and gives signs of life meanwhile.
fn carry_out(
    work: impl FnOnce(&Cancel) -> AnswerWithFiles + Send + 'static,
    signs: Signs,
    answers: &Mutex<impl Write>,
) -> io::Result<AnswerWithFiles> {
    let cancel = Cancel::default();
    let steps = cancel.clone();
    let (sender, answer) = mpsc::channel();
    let measuring = thread::Builder::new()
        .name("measure".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // The receiver waits for it.
            sender.send(work(&cancel)).ok();
        })?;
    let mut seen = steps.steps();
    loop {
        match answer.recv_timeout(BEAT) {
            Ok(answer) => return Ok(answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let now = steps.steps();
        if now != seen || signs == Signs::Always {
            seen = now;
            say(answers, &Answer::Progress)?;
        }
    }
    // A thread that ends without an answer has panicked.
    let answer = measuring
        .join()
        .map_or_else(|panic| panicked(&*panic), |()| panicked(&"it ended"));
    Ok((answer, Vec::new()))
}

fn panicked(panic: &(dyn Any + Send)) -> Answer {
    let said = crate::blocking::message(panic);
    Answer::Refused(Refusal {
        code: Code::EngineCrashed,
        message: format!("the process that measures panicked: {said}"),
        is_final: false,
        may_pass: false,
    })
}

fn say(answers: &Mutex<impl Write>, answer: &Answer) -> io::Result<()> {
    write(answers, answer, &[])
}

/// Writes an answer and its files.
fn say_with(answers: &Mutex<impl Write>, (answer, files): &AnswerWithFiles) -> io::Result<()> {
    write(answers, answer, files)
}

fn write(answers: &Mutex<impl Write>, answer: &Answer, files: &[Bytes]) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut answers = answers.lock();
    answers.write_all(&line)?;
    for file in files {
        answers.write_all(file)?;
    }
    answers.flush()
}

fn read(file: &Bytes, order: &Order) -> Result<ValidationSet, Invalid> {
    let expected = SetRequirements {
        signature: &order.signature,
        metric: order.metric,
        scored: &order.scored,
        limits: order.limits,
    };
    validation::read(file, expected)
}

/// The memory of reading a model, in all forms that are held at once when it is adapted. Errors in the model are
/// reported when it is adapted.
fn weigh(graph: &Bytes) -> u64 {
    let before = Baseline::take(true);
    let read = (sextant_onnx::decode(graph), sextant_onnx::inspect(graph));
    let grown = before.grown().unwrap_or_default();
    drop(read);
    grown
}

fn unfit(invalid: &Invalid) -> Answer {
    Answer::Unfit {
        of_shapes: invalid.is_of_shapes(),
        message: invalid.to_string(),
    }
}

fn refusal(error: &MeasureError) -> Answer {
    Answer::Refused(Refusal {
        // An engine that survives an allocation refused by the limit reports it only by this text.
        code: match error.to_string().contains("bad_alloc") {
            true => Code::MemoryExceeded,
            false => error.code(),
        },
        message: error.to_string(),
        is_final: matches!(
            error,
            MeasureError::Score(ScoreError::Invalid(_)) | MeasureError::Padding { .. }
        ),
        may_pass: error.may_pass(),
    })
}

impl Work {
    fn run(self, cancel: &Cancel) -> AnswerWithFiles {
        if let Action::Calibrate(how) = &self.order.action {
            return self.calibrate(how, cancel);
        }
        (self.answer(cancel), Vec::new())
    }

    fn answer(&self, cancel: &Cancel) -> Answer {
        match &self.order.action {
            Action::Measure { .. } => match self.measure(cancel) {
                Ok(measurement) => Answer::Measured(Box::new(measurement)),
                Err(MeasureError::Pruned(reason)) => Answer::Pruned(reason),
                Err(error) => refusal(&error),
            },
            Action::Batches { engine, batches } => {
                match self.differing_outputs(engine, *batches, cancel) {
                    Ok(differ) => Answer::Batches(differ),
                    Err(error) => refusal(&error),
                }
            }
            Action::Check => Answer::Checked(SetSummary::of(&self.validation, self.order.metric)),
            // These actions are handled elsewhere.
            Action::Weigh | Action::RecordShapes | Action::Rewrite(_) | Action::Calibrate(_) => {
                unfit(&Invalid::NoRecords)
            }
            Action::Shapes { engine } => match self.output_shapes(engine, cancel) {
                Ok(shapes) => Answer::Shapes(shapes),
                Err(error) => refusal(&error),
            },
            Action::Answers { engine, batch } => match self.answers(engine, *batch, cancel) {
                Ok(labels) => Answer::Answers(labels),
                Err(error) => refusal(&error),
            },
        }
    }

    fn calibrate(&self, how: &Calibrate, cancel: &Cancel) -> AnswerWithFiles {
        let named = how.engines.iter().filter_map(|name| self.engine(name));
        let sample = Sample {
            engines: named.cloned().collect(),
            validation: Arc::clone(&self.validation),
            records: how.records,
            batch: how.batch,
            signature: self.order.signature.clone(),
            metric: self.order.metric,
        };
        let made = calibrate::quantized(&self.artefact, &sample, cancel);
        let made = made.map_err(|message| RewriteFailure {
            code: Code::UnsupportedOperator,
            message,
        });
        let (rewritten, files) = RewriteReply::of(made, (&self.artefact, &[]));
        (Answer::Rewritten(rewritten), files)
    }

    fn measure(&self, cancel: &Cancel) -> Result<Measurement, MeasureError> {
        let order = &self.order;
        let Action::Measure {
            engine,
            precision,
            optimization,
            threads,
            padding,
            effort,
            rivals,
            accuracy,
            is_half,
        } = &order.action
        else {
            return Err(MeasureError::Cancelled);
        };
        let judge = self
            .validation
            .judge()
            .map(|graph| CustomMetric::load(graph, &self.engines));
        let judge = judge.transpose().map_err(ScoreError::from)?;
        let subject = Subject {
            judge: judge.as_ref(),
            engine: self.needed(engine)?,
            request: LoadRequest {
                artefact: order.artefact,
                model: self.artefact.clone(),
                precision: *precision,
                optimization: *optimization,
                threads: *threads,
            },
            signature: &order.signature,
            validation: &self.validation,
            metric: order.metric,
            padding: padding.as_ref(),
            rivals,
            accuracy: *accuracy,
            uploaded: Some(&self.uploaded),
            is_half: *is_half,
            in_own_process: true,
        };
        measure::measure(&subject, effort, cancel)
    }

    fn differing_outputs(
        &self,
        engine: &str,
        batches: Batches,
        cancel: &Cancel,
    ) -> Result<Vec<usize>, MeasureError> {
        let request = adapt::request(&self.artefact);
        let engine = self.needed(engine)?;
        measure::differing_outputs(engine, (&request, batches), &self.validation, cancel)
    }

    fn output_shapes(
        &self,
        engine: &str,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<Vec<u64>>>, MeasureError> {
        let request = adapt::request(&self.artefact);
        measure::output_shapes(self.needed(engine)?, &request, &self.validation, cancel)
    }

    fn answers(
        &self,
        engine: &str,
        batch: usize,
        cancel: &Cancel,
    ) -> Result<Vec<Labels>, MeasureError> {
        let request = adapt::request(&self.artefact);
        let how = (self.order.metric, batch);
        measure::answers(
            self.needed(engine)?,
            &request,
            &self.validation,
            how,
            cancel,
        )
    }

    fn needed(&self, engine: &str) -> Result<&dyn Engine, MeasureError> {
        let found = self.engine(engine).map(|engine| &**engine);
        found.ok_or_else(|| {
            MeasureError::Load(sextant_engine::Error::Unavailable {
                engine: "isolated",
                reason: format!("the process that measures has no engine `{engine}`"),
            })
        })
    }

    fn engine(&self, name: &str) -> Option<&Arc<dyn Engine>> {
        self.engines.iter().find(|it| it.name() == name)
    }
}
