//! Loading, unloading and settings over gRPC.

use std::collections::BTreeMap;

use sextant_registry::KeyScope;
use sextant_types::Code;

use super::{
    call::Context,
    describe::named,
    proto::{
        self, log_settings_request::setting_value::ParameterChoice as Given,
        log_settings_response::setting_value::ParameterChoice as Told,
    },
};
use crate::{
    codec::short,
    logging::{LogBody, LogChange},
    problem::Problem,
    repository, settings,
};

/// Loads a variant and waits until it has answered; from then on the name does not count as idle.
pub async fn load(
    context: Context,
    request: proto::RepositoryModelLoadRequest,
) -> Result<proto::RepositoryModelLoadResponse, Problem> {
    repository::check_parameters(request.parameters.keys().map(String::as_str))?;
    let named = named(&context, request.model_name, "").await?;
    repository::make_ready(&context.state, named).await?;
    Ok(proto::RepositoryModelLoadResponse {})
}

/// Lets a name count as idle again.
pub async fn unload(
    context: Context,
    request: proto::RepositoryModelUnloadRequest,
) -> Result<proto::RepositoryModelUnloadResponse, Problem> {
    repository::check_parameters(request.parameters.keys().map(String::as_str))?;
    let named = named(&context, request.model_name, "").await?;
    context.state.holds().release(&named.name);
    Ok(proto::RepositoryModelUnloadResponse {})
}

/// The settings of traces, all off. It accepts a setting that changes nothing.
pub async fn trace_setting(
    context: Context,
    request: proto::TraceSettingRequest,
) -> Result<proto::TraceSettingResponse, Problem> {
    if !request.model_name.is_empty() {
        named(&context, request.model_name, "").await?;
    }
    for (name, setting) in &request.settings {
        settings::check_trace(name, &setting.value)?;
    }
    let told = settings::TRACE.map(|(name, value)| {
        let value = vec![value.to_owned()];
        let setting = proto::trace_setting_response::SettingValue { value };
        (name.to_owned(), setting)
    });
    let settings = BTreeMap::from(told);
    Ok(proto::TraceSettingResponse { settings })
}

/// The settings of the log. To change one, the caller needs the scope `admin`.
pub async fn log_settings(
    context: Context,
    request: proto::LogSettingsRequest,
) -> Result<proto::LogSettingsResponse, Problem> {
    let logging = context.state.logging()?;
    if request.settings.is_empty() {
        return Ok(log_response(&logging.told()));
    }
    if !context.caller()?.has(KeyScope::Admin) {
        let detail = "the key lacks the scope `admin`";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let mut change = LogChange::default();
    for (name, setting) in request.settings {
        set(&mut change, &name, setting.parameter_choice)?;
    }
    let told = logging.change(&change)?;
    context.record("log.change", "logging").await?;
    Ok(log_response(&told))
}

/// Puts one setting into a change.
fn set(change: &mut LogChange, name: &str, value: Option<Given>) -> Result<(), Problem> {
    match (name, value) {
        ("log_file", Some(Given::StringParam(text))) => change.log_file = Some(text),
        ("log_format", Some(Given::StringParam(text))) => change.log_format = Some(text),
        ("log_info", Some(Given::BoolParam(flag))) => change.log_info = Some(flag),
        ("log_warning", Some(Given::BoolParam(flag))) => change.log_warning = Some(flag),
        ("log_error", Some(Given::BoolParam(flag))) => change.log_error = Some(flag),
        ("log_verbose_level", Some(Given::Uint32Param(level))) => {
            change.log_verbose_level = Some(level);
        }
        _ => {
            let detail = format!("there is no setting `{}` of that type", short(name));
            return Err(Problem::new(Code::InvalidRequest, detail).field("settings"));
        }
    }
    Ok(())
}

fn log_response(body: &LogBody) -> proto::LogSettingsResponse {
    let told = [
        ("log_file", Told::StringParam(body.log_file.to_owned())),
        ("log_info", Told::BoolParam(body.log_info)),
        ("log_warning", Told::BoolParam(body.log_warning)),
        ("log_error", Told::BoolParam(body.log_error)),
        (
            "log_verbose_level",
            Told::Uint32Param(body.log_verbose_level),
        ),
        ("log_format", Told::StringParam(body.log_format.to_owned())),
    ];
    let settings = told.map(|(name, value)| {
        let parameter_choice = Some(value);
        let setting = proto::log_settings_response::SettingValue { parameter_choice };
        (name.to_owned(), setting)
    });
    let settings = BTreeMap::from(settings);
    proto::LogSettingsResponse { settings }
}
