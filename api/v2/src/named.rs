//! The thing that a path of the protocol names: a variant, a version of a model, or an application.

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};
use sextant_rpc::{Answer, DispatcherClient};
use sextant_types::{ApplicationId, Code, ModelId, Releases, Route, Signature, VariantId};

use super::{VERSION, failure};
use crate::{ApiState, auth::Caller, codec::short, extract, problem::Problem};

/// The name in a path, and the thing that it names.
pub struct ResolvedName {
    pub(super) name: String,
    pub(super) route: Route,
    pub(super) signature: Signature,
}

/// The name and the version in a path, before they are resolved. The version is empty if there is none.
pub struct NamePath {
    pub(super) name: String,
    pub(super) version: String,
}

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(mut path) = Path::<Vec<String>>::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::new(Code::InvalidRequest, error.body_text()))?;
        let version = path.get(1).map_or(String::new(), String::clone);
        let name = if path.is_empty() {
            String::new()
        } else {
            path.swap_remove(0)
        };
        Ok(Self { name, version })
    }
}

impl FromRequestParts<ApiState> for ResolvedName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let NamePath { name, version } = NamePath::from_request_parts(parts, state).await?;
        let caller = Caller::from_request_parts(parts, state).await?;
        Self::find(state, &caller, name, &version).await
    }
}

// === impl ResolvedName ===

impl ResolvedName {
    /// The thing with a name and a version, if the caller may see it; without a version, the only one.
    pub(super) async fn find(
        state: &ApiState,
        caller: &Caller,
        name: String,
        version: &str,
    ) -> Result<Self, Problem> {
        Self::find_for_query(state, caller, (name, version), &mut None).await
    }

    /// The same for a query. `asked` is set to the route under which the query is counted, also if it is refused.
    pub(super) async fn find_for_query(
        state: &ApiState,
        caller: &Caller,
        (name, version): (String, &str),
        asked: &mut Option<Route>,
    ) -> Result<Self, Problem> {
        let Some((route, signature)) = resolve(state.dispatcher(), &name)? else {
            *asked = unanswered(state, &name);
            return Err(Self::missing(state, caller, &name).await);
        };
        state
            .check_owner(caller, asked.insert(route.clone()))
            .await?;
        let mut named = Self {
            name,
            route,
            signature,
        };
        if !version.is_empty() {
            named = named.in_version(state, version).await?;
            *asked = Some(named.route.clone());
        }
        Ok(named)
    }

    /// The same in one version.
    async fn in_version(self, state: &ApiState, version: &str) -> Result<Self, Problem> {
        let number = extract::digits(version).and_then(|it| u32::try_from(it).ok());
        let number = number.filter(|number| number.to_string() == version);
        let found = match (&self.route, number) {
            (Route::Model(reference), Some(number)) => {
                let exact = Route::Model(reference.at_version(number));
                let is_known = || state.dispatcher().signature(&exact).is_ok();
                match state.directory().numbered(reference) {
                    Some(of) => (of == number).then(|| self.route.clone()),
                    None if exact != self.route && is_known() => Some(exact),
                    None => None,
                }
            }
            (_, Some(1)) => Some(self.route.clone()),
            _ => None,
        };
        match found {
            Some(route) => Ok(Self { route, ..self }),
            None => Err(self.no_version(state, version).await?),
        }
    }

    async fn no_version(&self, state: &ApiState, version: &str) -> Result<Problem, Problem> {
        let (name, version) = (short(&self.name), short(version));
        let there = self.version_names(state).await?;
        let there = match there.len() {
            1 => format!("the only version is `{}`", there[0]),
            _ => format!("there are `{}`", there.join("`, `")),
        };
        let detail =
            format!("Request for unknown model: `{name}` version {version} is not found: {there}");
        Ok(Problem::new(Code::ModelNotFound, detail))
    }

    /// The versions of a model that the name addresses and that are ready, by number; none if it is not a model.
    pub(super) async fn versions(&self, state: &ApiState) -> Result<Vec<(u32, ModelId)>, Problem> {
        let Route::Model(reference) = &self.route else {
            return Ok(Vec::new());
        };
        let variants = state.metadata().variants().await?;
        let released = variants.iter();
        let releases = Releases::of(released.map(|it| (&it.application, &it.model, &it.release)));
        let Some(line) = releases.line(reference) else {
            return Ok(Vec::new());
        };
        let is_whole = releases.whole(reference).is_some();
        let one = releases.model(reference);
        let versions = line.versions.iter().map(|(number, (id, _))| (*number, id));
        let meant = versions.filter(|(_, id)| is_whole || Some(*id) == one);
        Ok(meant.map(|(number, id)| (number, id.clone())).collect())
    }

    /// The numbers of those versions that are ready.
    pub(super) async fn version_names(&self, state: &ApiState) -> Result<Vec<String>, Problem> {
        let versions = self.versions(state).await?;
        Ok(match versions.is_empty() {
            true => vec![VERSION.to_owned()],
            false => versions.iter().map(|(it, _)| it.to_string()).collect(),
        })
    }

    /// The number of the version that answered; 1 for something without versions.
    pub(super) fn version_of(&self, state: &ApiState, answer: &Answer) -> u32 {
        match &self.route {
            Route::Model(_) => state.directory().version(&answer.model).unwrap_or(1),
            Route::Application(_) | Route::Variant(_) => 1,
        }
    }

    /// The problem of a name that names nothing.
    async fn missing(state: &ApiState, caller: &Caller, name: &str) -> Problem {
        for route in meanings(name) {
            let Some(unannounced) = state.unannounced(&route) else {
                continue;
            };
            return match state.check_owner(caller, &route).await {
                Ok(()) => unannounced,
                Err(problem) => problem,
            };
        }
        // Clients search for the first words, which are those of Triton.
        let why = match Self::failed(state, caller, name).await {
            Some(failure) => format!("is not ready: {failure}"),
            None => "is not found: there is no variant, model or application of that name that can answer".to_owned(),
        };
        let detail = format!("Request for unknown model: `{}` {why}", short(name));
        Problem::new(Code::ModelNotFound, detail)
    }

    /// Why the model of that name cannot be asked, if its registration has failed and the caller may see it.
    async fn failed(state: &ApiState, caller: &Caller, name: &str) -> Option<String> {
        let model = state
            .registry()
            .model(&state.registry().resolve(&name.parse().ok()?).await.ok()?)
            .await
            .ok()?;
        caller
            .sees(&model.application)
            .then(|| failure(&model))
            .flatten()
    }

    /// Refuses a name that cannot be answered now.
    pub(super) fn check_ready(&self, state: &ApiState) -> Result<(), Problem> {
        if state.dispatcher().is_ready(&self.route) {
            return Ok(());
        }
        let detail = format!(
            "nothing of `{}` is loaded, and no worker can load it now",
            self.name
        );
        Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1000))
    }
}

/// The things that a name may name, in the order in which they are tried.
fn meanings(name: &str) -> impl Iterator<Item = Route> {
    let variant = VariantId::new(name).map(Route::Variant);
    let model = name.parse::<ModelId>().map(Route::Model);
    let application = ApplicationId::new(name).map(Route::Application);
    [variant, model, application].into_iter().flatten()
}

/// The route of a query that nothing can answer: to what is registered by the name, else to a model.
fn unanswered(state: &ApiState, name: &str) -> Option<Route> {
    let registered = meanings(name).find(|route| state.directory().is_registered(route));
    registered.or_else(|| name.parse().ok().map(Route::Model))
}

/// The thing that a name names.
fn resolve(
    dispatcher: &DispatcherClient,
    name: &str,
) -> Result<Option<(Route, Signature)>, Problem> {
    for route in meanings(name) {
        match dispatcher.signature(&route) {
            Ok(signature) => return Ok(Some((route, signature))),
            Err(error) if is_not_found(error.code) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

pub(super) fn is_not_found(code: Code) -> bool {
    matches!(
        code,
        Code::ApplicationNotFound | Code::ModelNotFound | Code::VariantNotFound
    )
}
