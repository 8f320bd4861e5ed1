//! Every statement of the registry, once for both dialects.
//!
//! Columns are named one by one: a column that a later version adds changes nothing for processes of this version.
//! `{table}` stands for the columns of a table. Text in brackets is only for PostgreSQL, which locks rows one by one
//! and not all together; text in `{sqlite ..}` is only for SQLite. Many rows at once are passed as one document.

/// A statement in both dialects; its parameters are `$1`, `$2` and so on.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) sqlite: &'static str,
    #[cfg(feature = "postgres")]
    pub(crate) postgres: &'static str,
}

macro_rules! columns {
    (applications) => {
        "id, metric, description, default_targets, signature, resources, presets, feedback"
    };
    (models) => {
        "id, application, digest, validation, size_bytes, status, error_code, error_message, \
         created_ms, padding, outputs, constants, data, classes, labels, names, name, version, stage, \
         percent, stage_since_ms, replaced, rules, registered_by, registered_by_admin"
    };
    (variants) => {
        "variants.id, variants.document, models.name, models.version, models.stage, models.percent, \
         models.stage_since_ms, models.registered_by_admin"
    };
    (jobs) => {
        "id, kind, application, model, spec, state, step, progress_done, progress_total, \
         error_code, error_message, attempts, owner, lease_until_ms, created_ms, updated_ms, result, \
         engine"
    };
    (api_keys) => {
        "id, name, hash, scopes, application, rate_per_s, burst, quota_per_day, created_ms, \
         expires_ms, revoked_ms"
    };
    (pipelines) => {
        "application, version, definition, files, created_ms"
    };
    (pipeline_measures) => {
        "application, version, followed, figures, measured_ms"
    };
    (feedback) => {
        "query, place, kind, application, model, version, variant, answered_ms, given_ms, value, \
         score, propensity, subject, actor"
    };
    (audit) => {
        "id, at_ms, actor, action, subject, detail"
    };
}

macro_rules! for_sqlite {
    ({sqlite $piece:literal}) => {
        $piece
    };
    ([$piece:literal]) => {
        ""
    };
    ({$table:ident}) => {
        columns!($table)
    };
    ($piece:literal) => {
        $piece
    };
}

#[cfg(feature = "postgres")]
macro_rules! for_postgres {
    ({sqlite $piece:literal}) => {
        ""
    };
    ([$piece:literal]) => {
        $piece
    };
    ({$table:ident}) => {
        columns!($table)
    };
    ($piece:literal) => {
        $piece
    };
}

macro_rules! statements {
    ($($name:ident = ($($piece:tt)+);)+) => {
        $(pub(crate) static $name: Sql = Sql {
            sqlite: concat!($(for_sqlite!($piece)),+),
            #[cfg(feature = "postgres")]
            postgres: concat!($(for_postgres!($piece)),+),
        };)+

        /// All statements by name.
        #[cfg(test)]
        pub(crate) static ALL: &[(&str, &Sql)] = &[$((stringify!($name), &$name)),+];
    };
}

statements! {
    APPLICATION = ("select " {applications} " from applications where id = $1");
    APPLICATIONS = ("select " {applications} " from applications order by id");
    CREATE_APPLICATION = (
        "insert into applications (id, metric, description, default_targets, signature, resources, \
         presets, feedback) values ($1, $2, $3, $4, $5, $6, $7, $8)"
    );
    DELETE_APPLICATION = ("delete from applications where id = $1");
    MODEL_OF_APPLICATION = ("select id from models where application = $1 limit 1");
    UNFINISHED_OF_APPLICATION = (
        "select id from jobs where application = $1 \
         and state in ('queued', 'running', 'paused') limit 1"
    );
    OTHER_SOUND_MODEL = ("select id from models where application = $1 and id <> $2 and status <> 'failed' limit 1");
    SOUND_MODEL = ("select id from models where application = $1 and status <> 'failed' limit 1");
    SET_SIGNATURE = ("update applications set signature = $2 where id = $1");
    CHANGE_APPLICATION = (
        "update applications set description = $2, default_targets = $3, resources = $4, \
         presets = $5, metric = $6, feedback = $7 where id = $1"
    );
    FORGET_SIGNATURE = (
        "update applications set signature = null where id = $1 \
         and not exists (select 1 from models where application = $1)"
    );

    MODEL = ("select " {models} " from models where id = $1");
    MODELS = ("select " {models} " from models order by id");
    MODELS_OF_APPLICATION = ("select " {models} " from models where application = $1 order by id");
    VERSIONS = (
        "select " {models} " from models where application = $1 and coalesce(name, id) = $2 \
         order by coalesce(version, 1)"
    );
    MEANT = ("select " {models} " from models where id = $1 or coalesce(name, id) = $1 order by id");
    TRIED = (
        "select " {models} " from models where stage in ('canary', 'shadow') and status = 'ready' \
         and rules is not null order by id"
    );
    CANARIES = ("select " {models} " from models where application = $1 and stage = 'canary'");
    SET_STAGE = (
        "update models set stage = $2, percent = $3, stage_since_ms = $4, replaced = $5, \
         rules = $6 where id = $1"
    );
    NAME_TAKEN = ("select id from models where id = $1 or (name = $1 and application <> $2) limit 1");
    ID_TAKEN = (
        "select id from models where id = $1 or name = $1 union \
         select id from applications where id = $1 union \
         select id from variants where id = $1 limit 1"
    );
    EXTENDABLE_MODELS = (
        "select " {models} " from models where status = 'ready' \
         and not exists (select 1 from steps where steps.model = models.id and steps.name = $2) \
         and not exists (select 1 from jobs where jobs.model = models.id and jobs.engine = $1 \
             and jobs.kind = 'extend' and jobs.state in ('queued', 'running', 'paused')) \
         order by models.id"
    );
    CREATE_MODEL = (
        "insert into models (id, application, digest, validation, size_bytes, status, created_ms, \
         padding, outputs, data, classes, constants, labels, names, name, version, stage, registered_by, \
         registered_by_admin) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"
    );
    SCORED = ("select id, scored from models where id = $1");
    SCORED_BEFORE = (
        "select id, scored from models where application = $1 and id <> $2 and status = 'ready' \
         and scored is not null order by created_ms, id"
    );
    SET_SCORED = ("update models set scored = $2 where id = $1");
    SET_MODEL_STATUS = ("update models set status = $2, error_code = $3, error_message = $4 where id = $1");
    DELETE_MODEL = ("delete from models where id = $1");

    STEPS = ("select model, name, result from steps where model = $1 order by name");
    PUT_STEP = (
        "insert into steps (model, name, result) values ($1, $2, $3) \
         on conflict (model, name) do update set result = excluded.result"
    );

    VARIANT = (
        "select " {variants} " from variants join models on models.id = variants.model \
         where variants.id = $1"
    );
    VARIANTS_OF_MODEL = (
        "select " {variants} " from variants join models on models.id = variants.model \
         where variants.model = $1 order by variants.id"
    );
    READY_VARIANTS = (
        "select " {variants} " from variants join models on models.id = variants.model \
         where models.status = 'ready' order by variants.id"
    );
    READY_VARIANTS_OF_APPLICATION = (
        "select " {variants} " from variants join models on models.id = variants.model \
         where models.status = 'ready' and models.application = $1 order by variants.id"
    );
    READY_RELEASES = (
        "select variants.id, variants.model, models.name, models.version, models.stage, models.percent, \
         models.stage_since_ms from variants join models on models.id = variants.model \
         where models.status = 'ready' order by variants.id"
    );
    READY_RELEASES_OF_APPLICATION = (
        "select variants.id, variants.model, models.name, models.version, models.stage, models.percent, \
         models.stage_since_ms from variants join models on models.id = variants.model \
         where models.status = 'ready' and models.application = $1 order by variants.id"
    );
    PUT_VARIANT = (
        "insert into variants (id, model, application, document) values ($1, $2, $3, $4) \
         on conflict (id) do update set model = excluded.model, \
         application = excluded.application, document = excluded.document"
    );
    VARIANT_NAMES = ("select id from variants where model = $1 order by id");

    // One statement for each set of variants: the condition "equal or not given" uses no index.
    PROFILES = (
        "select variant, device_type, document from profiles where document is not null \
         order by variant, device_type"
    );
    PROFILES_OF_VARIANT = (
        "select variant, device_type, document from profiles where variant = $1 \
         and document is not null order by variant, device_type"
    );
    PROFILES_OF_MODEL = (
        "select profiles.variant, profiles.device_type, profiles.document from variants \
         join profiles on profiles.variant = variants.id where variants.model = $1 \
         and profiles.document is not null order by profiles.variant, profiles.device_type"
    );
    PROFILES_OF_APPLICATION = (
        "select profiles.variant, profiles.device_type, profiles.document from models \
         join variants on variants.model = models.id \
         join profiles on profiles.variant = variants.id where models.application = $1 \
         and profiles.document is not null order by profiles.variant, profiles.device_type"
    );
    PUT_PROFILE = (
        "insert into profiles (variant, device_type, document, failures, updated_ms) \
         values ($1, $2, $3, 0, $4) on conflict (variant, device_type) do update set \
         document = excluded.document, failures = 0, error_code = null, error_message = null, \
         updated_ms = excluded.updated_ms"
    );
    FAIL_PROFILE = (
        "insert into profiles (variant, device_type, failures, error_code, error_message, updated_ms) \
         values ($1, $2, 1, $3, $4, $5) on conflict (variant, device_type) do update set \
         failures = profiles.failures + 1, error_code = excluded.error_code, \
         error_message = excluded.error_message, updated_ms = excluded.updated_ms"
    );
    FAILED_PROFILES = (
        "select variant, device_type, failures, error_code, error_message, updated_ms from profiles \
         where failures > 0 order by variant, device_type"
    );

    JOB = ("select " {jobs} " from jobs where id = $1");
    JOB_TO_CHANGE = ("select " {jobs} " from jobs where id = $1" [" for update"]);
    // The last job of the previous page may have been removed since: ids also grow with the time of creation.
    JOBS = (
        "select " {jobs} " from jobs where (kind = $1 or $1 is null) and (state = $2 or $2 is null) \
         and (application = $3 or $3 is null) and (model = $4 or $4 is null) \
         and ((created_ms, id) < \
             (select created_ms, id from jobs where id = $5) or $5 is null \
             or (id < $5 and not exists (select 1 from jobs where id = $5))) \
         order by created_ms desc, id desc limit $6"
    );
    REGISTRATION_OF_MODEL = (
        "select " {jobs} " from jobs where model = $1 and kind = 'register' \
         order by created_ms desc, id desc limit 1"
    );
    UNFINISHED_OF_MODEL = (
        "select id from jobs where model = $1 and state in ('queued', 'running', 'paused') limit 1"
    );
    CREATE_JOB = (
        "insert into jobs (id, kind, application, model, spec, state, step, progress_done, \
         progress_total, attempts, lease_until_ms, created_ms, updated_ms, engine) \
         values ($1, $2, $3, $4, $5, 'queued', '', 0, 0, 0, 0, $6, $6, $7) returning " {jobs}
    );
    EXTENSIONS = (
        "select " {jobs} " from jobs where model = $1 and engine = $2 and kind = 'extend' \
         order by created_ms, id"
    );
    // This leaves the job of the registration: that of a ready model has ended.
    CANCEL_EXTENSIONS = (
        "update jobs set state = 'cancelled', owner = null, lease_until_ms = 0, updated_ms = $2 \
         where model = $1 and kind = 'extend' and state in ('queued', 'running', 'paused')"
    );
    // Concurrent runners get different jobs: each skips a job that another one is taking.
    CLAIM_JOB = (
        "update jobs set state = 'running', owner = $2, attempts = attempts + 1, \
         lease_until_ms = $3, updated_ms = $4 where id = ( \
             select id from jobs where kind = $1 and engine is not distinct from $5 \
             and (application = $6 or $6 is null) and (coalesce((select registered_by from models \
             where models.id = jobs.model), '') = $7 or $7 is null) \
             and (case when exists (select 1 from pipelines where pipelines.application = jobs.application) \
             then 'pipelines' else 'variants' end = $8 or $8 is null) \
             and (state = 'queued' or (state in ('running', 'paused') and lease_until_ms <= $4)) \
             order by created_ms, id limit 1" [" for update skip locked"] ") \
         returning " {jobs}
    );
    WAITING = (
        "select jobs.application, coalesce(models.registered_by, '') as registrant from jobs \
         left join models on models.id = jobs.model where jobs.kind = $1 and jobs.engine is null \
         and (jobs.state = 'queued' or (jobs.state in ('running', 'paused') and jobs.lease_until_ms <= $2)) \
         group by jobs.application, registrant order by min(jobs.created_ms), jobs.application, registrant"
    );
    // A job that is being changed at this moment has a living holder.
    REQUEUE_JOBS = (
        "update jobs set state = 'queued', owner = null, lease_until_ms = 0, updated_ms = $2 \
         where id in (select id from jobs where state in ('running', 'paused') \
         and (lease_until_ms <= $1 or $1 is null) order by id" [" for update skip locked"] ")"
    );
    CANCEL_JOB = (
        "update jobs set state = 'cancelled', owner = null, lease_until_ms = 0, \
         updated_ms = $2 where id = $1 returning " {jobs}
    );
    CANCEL_MEASURES = (
        "update jobs set state = 'cancelled', owner = null, lease_until_ms = 0, updated_ms = $2 \
         where application = $1 and kind = 'measure' and state in ('queued', 'running', 'paused')"
    );
    ADVANCE_JOB = ("update jobs set step = $2, progress_done = $3, progress_total = $4, updated_ms = $5 where id = $1");
    RENEW_JOB = ("update jobs set lease_until_ms = $2, updated_ms = $3 where id = $1");
    SET_JOB_STATE = ("update jobs set state = $2, updated_ms = $3 where id = $1");
    SET_JOB_RESULT = ("update jobs set result = $2 where id = $1");
    SET_JOB_ERROR = ("update jobs set error_code = $2, error_message = $3 where id = $1");
    END_JOB = ("update jobs set state = $2, owner = null, lease_until_ms = 0, updated_ms = $3 where id = $1");

    ENDED_OFFLINE_JOBS = (
        "select " {jobs} " from jobs where kind = 'offline' \
         and state in ('succeeded', 'failed', 'cancelled') and (updated_ms, id) > ($1, $2) \
         order by updated_ms, id limit $3"
    );
    ENDED_JOBS = (
        "select " {jobs} " from jobs where state in ('succeeded', 'failed', 'cancelled') \
         and updated_ms < $1 and (kind = 'offline' \
         or not exists (select 1 from models where models.id = jobs.model) \
         or (kind = 'register' and exists (select 1 from jobs later where later.model = jobs.model \
             and later.kind = 'register' \
             and (later.created_ms, later.id) > (jobs.created_ms, jobs.id)))) \
         order by updated_ms, id limit $2"
    );
    FORGET_JOB = ("delete from jobs where id = $1 and state in ('succeeded', 'failed', 'cancelled')");
    // A model that failed before jobs were stored is as old as its row.
    FAILED_MODELS = (
        "select id, application from models where status = 'failed' and coalesce( \
             (select max(updated_ms) from jobs where jobs.model = models.id \
              and jobs.kind = 'register'), created_ms) < $1 \
         and not exists (select 1 from jobs where jobs.model = models.id \
             and jobs.state in ('queued', 'running', 'paused')) order by id"
    );

    PIPELINES = (
        "select " {pipelines} " from pipelines where version = \
         (select max(version) from pipelines latest where latest.application = pipelines.application) \
         order by application"
    );
    PIPELINE = ("select " {pipelines} " from pipelines where application = $1 order by version desc limit 1");
    PIPELINE_VERSIONS = (
        "select " {pipelines} " from pipelines where application = $1 order by version desc"
    );
    ADD_PIPELINE = (
        "insert into pipelines (application, version, definition, files, created_ms) \
         values ($1, $2, $3, $4, $5)"
    );

    PIPELINE_MEASURES = ("select " {pipeline_measures} " from pipeline_measures order by application");
    PUT_PIPELINE_MEASURE = (
        "insert into pipeline_measures (application, version, followed, figures, measured_ms) \
         values ($1, $2, $3, $4, $5) on conflict (application) do update set version = excluded.version, \
         followed = excluded.followed, figures = excluded.figures, measured_ms = excluded.measured_ms"
    );

    // Rows of an application that does not exist are not stored, nor are rows of a model whose id another model has
    // now.
    GIVE_FEEDBACK = (
        "insert into feedback (query, place, kind, application, model, version, variant, \
         answered_ms, given_ms, value, score, propensity, subject, actor, bytes, body) "
        {sqlite "select e.value->>'query', e.value->>'place', e.value->>'kind', e.value->>'application', \
         e.value->>'model', e.value->>'version', e.value->>'variant', \
         e.value->>'answered_ms', e.value->>'given_ms', e.value->>'value', \
         e.value->>'score', e.value->>'propensity', e.value->>'subject', \
         e.value->>'actor', e.value->>'bytes', e.value->>'body' from json_each($1) e \
         join applications on applications.id = e.value->>'application' where not exists \
         (select 1 from models where models.id = e.value->>'model' and models.application = \
         applications.id and models.created_ms > e.value->>'answered_ms') "}
        ["select e.query, e.place, e.kind, e.application, e.model, e.version, e.variant, \
         e.answered_ms, e.given_ms, e.value, e.score, e.propensity, e.subject, e.actor, \
         e.bytes, e.body from json_to_recordset($1) as e (query text, place bigint, kind \
         text, application text, model text, version bigint, variant text, answered_ms \
         bigint, given_ms bigint, value text, score double precision, propensity double \
         precision, subject text, actor text, bytes bigint, body text) join applications \
         on applications.id = e.application where not exists (select 1 from models where models.id = \
         e.model and models.application = applications.id and models.created_ms > e.answered_ms) "]
        "on conflict (query, place, kind) do nothing"
    );
    FEEDBACK_THERE = (
        "select f.query, f.place, f.kind, f.value, f.body from "
        {sqlite "json_each($1) e join feedback f on f.query = e.value->>'query' \
         and f.place = e.value->>'place' and f.kind = e.value->>'kind'"}
        ["json_to_recordset($1) as e (query text, place bigint, kind text) join feedback f \
         on f.query = e.query and f.place = e.place and f.kind = e.kind"]
    );
    WITHDRAW_FEEDBACK = (
        "delete from feedback where (query, place, kind) in (select "
        {sqlite "e.value->>'query', e.value->>'place', e.value->>'kind' from json_each($1) e)"}
        ["e.query, e.place, e.kind from json_to_recordset($1) as e (query text, place bigint, kind text))"]
    );
    ADD_SUMS = (
        "insert into feedback_sums (application, model, version, variant, kind, hour, counted, \
         total, squares) "
        {sqlite "select e.value->>'application', e.value->>'model', e.value->>'version', \
         e.value->>'variant', e.value->>'kind', e.value->>'hour', e.value->>'counted', \
         e.value->>'total', e.value->>'squares' from json_each($1) e where true "}
        ["select e.application, e.model, e.version, e.variant, e.kind, e.hour, e.counted, e.total, \
         e.squares from json_to_recordset($1) as e (application text, model text, \
         version bigint, variant text, kind text, hour bigint, counted bigint, total \
         double precision, squares double precision) "]
        "on conflict (application, model, version, variant, kind, hour) do update set \
         counted = feedback_sums.counted + excluded.counted, \
         total = feedback_sums.total + excluded.total, \
         squares = feedback_sums.squares + excluded.squares"
    );
    FEEDBACK = (
        "select " {feedback} " from feedback where application = $1 and given_ms >= $2 \
         and (given_ms, query, place, kind) > ($2, $3, $4, $5) \
         order by given_ms, query, place, kind limit $6"
    );
    ERASE_QUERY = ("delete from feedback where application = $1 and query = $2");
    ERASE_SUBJECT = ("delete from feedback where application = $1 and subject = $2");
    FORGET_FEEDBACK = (
        "delete from feedback where (query, place, kind) in \
         (select query, place, kind from feedback where application = $1 and given_ms <= $2 \
         order by given_ms, bytes limit $3)"
    );
    FORGET_SUMS = ("delete from feedback_sums where application = $1 and hour < $2");
    FORGET_SUMS_OF_MODEL = ("delete from feedback_sums where application = $1 and model = $2");
    FORGET_ALARMS_OF_MODEL = ("delete from feedback_alarms where application = $1 and model = $2");
    FEEDBACK_BYTES = (
        "select id as application, coalesce((select " ["cast("] "sum(bytes)" [" as bigint)"] " from feedback \
         where application = applications.id), 0) as bytes from applications where id = $1"
    );
    // The number of the oldest rows that take less than a number of bytes. Rows with the same time and size are
    // interchangeable.
    FEEDBACK_BELOW = (
        "select id as application, (select count(*) from (select " ["cast("]
         "sum(bytes) over (order by given_ms, bytes rows unbounded preceding)" [" as bigint)"]
         " as passed from (select given_ms, bytes from feedback where application = $1 \
         order by given_ms, bytes limit $3) as few) as oldest where passed < $2) as counted \
         from applications where id = $1"
    );
    FEEDBACK_SUMS = (
        "select application, model, version, variant, kind, hour, counted, total, squares \
         from feedback_sums where application = $1 \
         order by application, model, version, variant, kind, hour"
    );
    FEEDBACK_KEYS = ("select number, secret, created_ms, from_ms from feedback_keys order by number");
    PUT_FEEDBACK_KEY = (
        "insert into feedback_keys (number, secret, created_ms, from_ms) values ($1, $2, $3, $4) \
         on conflict (number) do nothing"
    );
    FORGET_FEEDBACK_KEYS = ("delete from feedback_keys where number < $1");
    PUT_SHADOW_ANSWERS = (
        "insert into shadow_answers (model, serial, answered_ms, counted, prediction) "
        {sqlite "select e.value->>'model', e.value->>'serial', e.value->>'answered_ms', \
         e.value->>'counted', e.value->>'prediction' from json_each($1) e \
         join models on models.id = e.value->>'model' "}
        ["select e.model, e.serial, e.answered_ms, e.counted, e.prediction \
         from json_to_recordset($1) as e (model text, serial text, answered_ms bigint, \
         counted bigint, prediction text) join models on models.id = e.model "]
        "join applications on applications.id = models.application \
         where applications.feedback is not null on conflict (model, serial) do nothing"
    );
    SHADOW_ANSWERS = (
        "select s.serial, s.counted, s.prediction from "
        {sqlite "json_each($2) e join shadow_answers s on s.serial = e.value->>'serial' "}
        ["json_to_recordset($2) as e (serial text) join shadow_answers s on s.serial = e.serial "]
        "where s.model = $1"
    );
    FORGET_SHADOW_ANSWERS = ("delete from shadow_answers where answered_ms < $1");
    FORGET_EXCESS_SHADOW_ANSWERS = (
        "delete from shadow_answers where answered_ms < (select coalesce(min(answered_ms), 0) from \
         (select answered_ms from shadow_answers order by answered_ms desc limit $1) as kept)"
    );
    FEEDBACK_ALARMS = (
        "select application, model, kind, since_ms, seen, bound, counted, told_ms \
         from feedback_alarms where application = $1 order by model, kind"
    );
    RAISE_ALARM = (
        "insert into feedback_alarms (application, model, kind, since_ms, seen, bound, counted, \
         taken_ms) values ($1, $2, $3, $4, $5, $6, $7, 0) on conflict (application, model, kind) \
         do update set seen = excluded.seen, bound = excluded.bound, counted = excluded.counted"
    );
    TAKE_ALARM = (
        "update feedback_alarms set taken_ms = $5 where application = $1 and model = $2 \
         and kind = $3 and told_ms is null and taken_ms <= $4"
    );
    TOLD_ALARM = (
        "update feedback_alarms set told_ms = $4 where application = $1 and model = $2 and kind = $3"
    );
    CLEAR_ALARM = ("delete from feedback_alarms where application = $1 and model = $2 and kind = $3");

    BLOBS_OF_MODELS = ("select id as model, application, digest, validation, data from models order by id");
    DOCUMENTS_OF_VARIANTS = ("select model, application, document from variants order by id");
    DOCUMENTS_OF_STEPS = (
        "select steps.model, models.application, steps.result as document from steps \
         join models on models.id = steps.model order by steps.model, steps.name"
    );
    FILES_OF_PIPELINES = (
        "select application as model, application, files as document from pipelines \
         order by application, version"
    );
    CONDEMN = ("insert into condemned (digest, since_ms) values ($1, $2) on conflict (digest) do nothing");
    CONDEMNED = ("select digest from condemned where digest = $1");
    ALL_CONDEMNED = ("select digest, since_ms from condemned order by digest");
    ACQUIT = ("delete from condemned where digest = $1");

    IDENTITY = ("select id from identity where place = 1");
    IDENTIFY = ("insert into identity (place, id) values (1, $1) on conflict (place) do nothing");
    RENAME = (
        "insert into identity (place, id) values (1, $1) \
         on conflict (place) do update set id = excluded.id"
    );

    ONCE = ("select fingerprint, job, created_ms from once where caller = $1 and name = $2");
    PUT_ONCE = (
        "insert into once (caller, name, fingerprint, job, created_ms) values ($1, $2, $3, $4, $5) \
         on conflict (caller, name) do update set fingerprint = excluded.fingerprint, \
         job = excluded.job, created_ms = excluded.created_ms"
    );
    FORGET_ONCE = ("delete from once where created_ms < $1");

    KEY = ("select " {api_keys} " from api_keys where id = $1");
    KEY_BY_HASH = ("select " {api_keys} " from api_keys where hash = $1");
    KEYS = ("select " {api_keys} " from api_keys order by created_ms, id");
    CREATE_KEY = (
        "insert into api_keys (id, name, hash, scopes, application, rate_per_s, burst, \
         quota_per_day, created_ms, expires_ms) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
    );
    REVOKE_KEY = ("update api_keys set revoked_ms = $2 where id = $1");
    REVISION = ("select name, revision from revisions where name = $1");
    RAISE_REVISION = (
        "insert into revisions (name, revision) values ($1, 1) \
         on conflict (name) do update set revision = revisions.revision + 1"
    );

    RECORD = (
        "insert into audit (id, at_ms, actor, action, subject, detail) \
         values ($1, $2, $3, $4, $5, $6) on conflict (id) do nothing"
    );
    FORGET_AUDIT = (
        "delete from audit where id in \
         (select id from audit where at_ms < $1 order by at_ms, id limit $2)"
    );
    AUDIT = (
        "select " {audit} " from audit where (actor = $1 or $1 is null) \
         and (action = $2 or $2 is null) and (subject = $3 or $3 is null) \
         and (at_ms >= $4 or $4 is null) \
         and ((at_ms, id) < (select at_ms, id from audit where id = $5) or $5 is null) \
         order by at_ms desc, id desc limit $6"
    );
}
