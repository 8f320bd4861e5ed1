-- What was measured of a variant on types of devices other than the one that registered it, and how
-- often that was tried in vain. Times are milliseconds since the Unix epoch.

create table profiles (
    variant text not null references variants (id) on delete cascade,
    device_type text not null,
    -- Null until it was measured.
    document text,
    -- Since the last success.
    failures integer not null,
    -- Of the last failure; null after a success.
    error_code text,
    error_message text,
    updated_ms integer not null,
    primary key (variant, device_type)
) strict;
