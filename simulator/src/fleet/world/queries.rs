//! Queries: which variant they go to, and how they end.

use sextant_schedule::{DropReason, NEVER, Request};
use sextant_selection::Decision;
use sextant_types::{index::VariantIx, share_of};

use super::{World, nanos};
use crate::{
    Arrival,
    fleet::control::{Control, Token},
};

/// The most times that a query is placed.
const PLACEMENTS: u8 = 5;

impl World<'_> {
    pub(super) fn on_arrival(&mut self, arrival: Arrival) {
        self.report.simulated += 1;
        self.inside.on_arrival(self.now, arrival.model);
        if self.counts(arrival.at) {
            self.report.classes[arrival.model as usize].sent += 1;
            self.open += 1;
        }
        self.place(Token {
            arrived: arrival.at,
            class: arrival.model,
            variant: VariantIx::default(),
            load: false,
            placed: 0,
        });
    }

    /// Chooses a variant for a query and hands it to the controller, or refuses it.
    pub(super) fn place(&mut self, token: Token) {
        let (now, class) = (self.now, token.class);
        self.show();
        let decision = self.control.choose(now, self.setting, class, token.arrived);
        let (variant, load) = match decision {
            Decision::Use { ordinal } => (ordinal, false),
            Decision::LoadThenUse { ordinal } => (ordinal, true),
            Decision::Warming { ordinal, .. } => {
                let Control {
                    controller,
                    actions,
                    ..
                } = &mut self.control;
                controller.on_missed(now, ordinal, actions);
                return self.refuse(token, true);
            }
            Decision::Infeasible { .. } => return self.refuse(token, false),
            Decision::Busy { .. } | Decision::Unavailable { .. } => {
                return self.refuse(token, true);
            }
        };
        let of = &self.setting.classes[class as usize];
        let deadline = of.latency_ms.map_or(NEVER, |ms| token.arrived + nanos(ms));
        let request = Request {
            payload: Token {
                variant,
                load,
                placed: token.placed + 1,
                ..token
            },
            rows: 1,
            deadline,
        };
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        controller.on_request(now, variant, request, actions);
    }

    pub(super) fn refuse(&mut self, token: Token, for_want: bool) {
        self.inside.on_end(self.now, token.class);
        self.ended[token.class as usize].add_query(for_want);
        if self.counts(token.arrived) {
            self.report.classes[token.class as usize].refused += 1;
            self.open -= 1;
        }
    }

    pub(super) fn answer(&mut self, request: &Request<Token>) {
        let token = request.payload;
        self.inside.on_end(self.now, token.class);
        let is_late = self.now > request.deadline;
        self.ended[token.class as usize].add_query(is_late);
        if !self.counts(token.arrived) {
            return;
        }
        self.open -= 1;
        let variant = &self.setting.variants[token.variant];
        let best = self.setting.best_accuracy(variant.application);
        self.report.answers[token.variant] += 1;
        let counted = &mut self.report.classes[token.class as usize];
        counted.accuracy_sum_percent += 100.0 * share_of(variant.accuracy, best);
        match is_late {
            true => counted.late += 1,
            false => counted.in_time += 1,
        }
    }

    pub(super) fn on_drop(&mut self, request: &Request<Token>, reason: DropReason) {
        let token = request.payload;
        // The device with the variant went away. Another may take the query, as in the dispatcher.
        let again = reason == DropReason::Gone
            && !token.load
            && token.placed < PLACEMENTS
            && self.now < request.deadline;
        match again {
            true => self.place(token),
            false => self.refuse(token, true),
        }
    }
}
