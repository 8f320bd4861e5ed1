-- What shadows have answered to queries whose answers have tokens: feedback on the current version's answer says what they
-- are worth, too. A row stays as long as feedback on its query may come.
create table shadow_answers (
    model text collate "C" not null references models (id) on delete cascade,
    -- The number in the token of the current version's answer: 16 hexadecimal digits.
    serial text collate "C" not null,
    answered_ms bigint not null,
    -- Rows of the answer.
    counted bigint not null,
    -- What was predicted, as tokens have it, in hexadecimal digits.
    prediction text collate "C" not null,
    primary key (model, serial)
);

create index shadow_answers_by_time on shadow_answers (answered_ms);
