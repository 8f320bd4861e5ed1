//! A query's four messages: it is asked of the dispatcher, and its inputs are sent to the worker.

use std::sync::Arc;

use async_trait::async_trait;
use sextant_links::{
    front::{
        Connector, DispatcherHalf, FrontReport, FrontRequest, QueryInputs, QueryMessage,
        ToDispatcher,
    },
    grpc::{Caller, Limits},
    link::{Clock, Stamp},
    mailbox::{FromMailbox, ToMailbox},
};
use sextant_rpc::{
    Answer, Ask, Assignment, Dispatch, Holder, Part, Query, QueryError, Ticket, Timings,
    WorkerClient,
};
use sextant_types::{ApplicationId, Code, ModelId, NamedTensor, Route, Signature, Targets, Tensor};

use crate::{
    double::{infer, there, variant_id, worker_id},
    process::{Process, config, connector, dispatcher, hello, reach},
};

/// Sends each query as a separate batch to one worker.
struct Direct(WorkerClient);

#[async_trait]
impl Dispatch for Direct {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        let result = infer(&*self.0, vec![Part::Inputs(query.inputs)]).await;
        let mut result =
            result.map_err(|error| QueryError::new(Code::Unavailable, error.to_string()))?;
        let outputs = result.outputs.remove(0);
        let outputs =
            outputs.map_err(|error| QueryError::new(Code::EngineFailed, error.to_string()))?;
        Ok(Answer {
            variant: variant_id("m"),
            model: ModelId::new("m").expect("a name"),
            outputs: outputs
                .into_iter()
                .map(|tensor| NamedTensor::new("y", tensor))
                .collect(),
            rows: 1,
            timings: Timings::default(),
            targets_met: true,
            cost_usd: 0.5,
            explanation: None,
        })
    }

    async fn place(&self, ask: Ask, holder: Arc<dyn Holder>) -> Result<(), QueryError> {
        if ask.rows == 0 {
            return Err(QueryError::new(Code::InvalidTensor, "no rows"));
        }
        holder.assign(Assignment {
            ticket: ask.ticket,
            worker: worker_id("there"),
            variant: variant_id("m"),
            model: ModelId::new("m").expect("a name"),
            file: None,
            suits: true,
            load: false,
            second_usd: 0.5,
            explanation: None,
        });
        let result = infer(&*self.0, vec![Part::Held(ask.ticket)]).await;
        let result = result.map_err(|error| QueryError::new(Code::Unavailable, error.to_string()));
        // The outputs went directly to the front end.
        assert_eq!(result?.outputs, [Ok(Vec::new())]);
        Ok(())
    }

    fn signature(&self, _route: &Route) -> Result<Signature, QueryError> {
        Err(QueryError::new(Code::ModelNotFound, "none"))
    }

    fn utilization(&self) -> f64 {
        0.5
    }

    fn is_ready(&self, _route: &Route) -> bool {
        true
    }
}

fn ask(ticket: Ticket, inputs: QueryInputs) -> ToDispatcher {
    ToDispatcher {
        stamp: Stamp {
            sent_at_ns: 1 << 60,
            least_delta_ns: None,
        },
        body: FrontRequest::Ask(Box::new(QueryMessage {
            ticket,
            route: Route::Application(ApplicationId::new("a").expect("a name")),
            inputs,
            targets: Targets::default(),
            best_effort: false,
            explain: false,
            sticky: None,
            serial: None,
            composites: Vec::new(),
            offline: false,
            step: None,
            arrived_ns: 1 << 60,
        })),
    }
}

fn kept(rows: u32) -> QueryInputs {
    QueryInputs::Kept {
        rows,
        dims: vec![7],
        kept: Vec::new(),
    }
}

fn ticket(query: u64) -> Ticket {
    Ticket {
        holder: u64::MAX,
        query,
        attempt: 1,
    }
}

fn tensor() -> Tensor {
    Tensor::from_elements(vec![1, 3], &[1u8, 2, 3]).expect("three")
}

/// A process with a worker, and one with a dispatcher that sends everything to that worker.
async fn processes() -> (Process, Process) {
    let process = Process::start(config()).await;
    let reached = reach(&dispatcher(), &process.endpoint).await;
    let leading = Process::start(config()).await;
    leading.roles.set_dispatcher(DispatcherHalf {
        dispatcher: Arc::new(Direct(reached.worker)),
        leads: Arc::new(|| true),
        clock: Clock::system(),
    });
    (process, leading)
}

#[tokio::test]
async fn a_small_query_is_answered_by_the_dispatcher() {
    let (process, leading) = processes().await;
    let front = connector(Limits::default(), hello(Caller::FrontEnd, None));
    let asking = front.connect_dispatcher(&leading.endpoint).await;
    let asking = asking.expect("it is let in");
    for query in 0..10 {
        let inputs = QueryInputs::Here(Ok(vec![NamedTensor::new("x", tensor())]));
        asking
            .send(ask(ticket(query), inputs))
            .expect("the link holds");
        match asking.receive().await.expect("the link holds").body {
            FrontReport::Answered {
                query: of,
                outcome: Ok(answer),
            } => {
                assert_eq!(of, query);
                assert_eq!(answer.outputs, [NamedTensor::new("y", tensor())]);
                assert_eq!((answer.targets_met, answer.cost_usd), (true, 0.5));
            }
            other => panic!("{other:?}"),
        }
    }
    leading.stop().await;
    process.stop().await;
}

#[tokio::test]
async fn inputs_go_to_the_worker_and_outputs_come_from_there() {
    let (process, leading) = processes().await;
    let front = connector(Limits::default(), hello(Caller::FrontEnd, None));
    let asking = front.connect_dispatcher(&leading.endpoint).await;
    let asking = asking.expect("it is let in");
    let delivering = front.connect_mailbox(there(), &process.endpoint);
    let delivering = delivering.await.expect("it is let in");

    let tensor = tensor();
    for query in 0..10 {
        asking
            .send(ask(ticket(query), kept(1)))
            .expect("the link holds");
        match asking.receive().await.expect("the link holds").body {
            FrontReport::Assign(assignment) => assert_eq!(assignment.ticket, ticket(query)),
            other => panic!("{other:?}"),
        }
        let inputs = ToMailbox::Inputs {
            ticket: ticket(query),
            rows: 1,
            inputs: vec![NamedTensor::new("x", tensor.clone())],
        };
        delivering.send(inputs).expect("the link holds");
        match delivering.receive().await.expect("the link holds") {
            FromMailbox::Outputs {
                ticket: of,
                outcome: Ok(part),
            } => {
                assert_eq!(of, ticket(query));
                assert_eq!(part.outputs, std::slice::from_ref(&tensor));
            }
            other => panic!("{other:?}"),
        }
        let done = asking.receive().await.expect("the link holds").body;
        let outcome = Ok(());
        assert_eq!(done, FrontReport::Done { query, outcome });
    }

    // A refusal has its code.
    asking
        .send(ask(ticket(10), kept(0)))
        .expect("the link holds");
    match asking.receive().await.expect("the link holds").body {
        FrontReport::Done {
            query: 10,
            outcome: Err(error),
        } => assert_eq!(error.code, Code::InvalidTensor),
        other => panic!("{other:?}"),
    }
    leading.stop().await;
    process.stop().await;
}
