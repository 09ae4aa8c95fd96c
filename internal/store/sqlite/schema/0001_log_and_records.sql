-- Times are whole microseconds since 1970 in UTC; an absent time is NULL.
-- Payloads are BLOBs: they come back byte for byte, whatever is in them.
-- Identifiers compare as bytes (the default collation), so ids sort by the time they were made.

CREATE TABLE workspaces (
    no      INTEGER PRIMARY KEY,
    id      TEXT    NOT NULL UNIQUE,
    name    TEXT    NOT NULL
) STRICT;

CREATE TABLE keys (
    id        TEXT    NOT NULL PRIMARY KEY,
    workspace TEXT    NOT NULL REFERENCES workspaces (id),
    name      TEXT    NOT NULL,
    hint      TEXT    NOT NULL,
    hash      BLOB    NOT NULL UNIQUE,
    created   INTEGER NOT NULL,
    revoked   INTEGER
) STRICT;

CREATE TABLE nodes (
    node    TEXT    NOT NULL PRIMARY KEY,
    expires INTEGER NOT NULL
) STRICT;

-- A session's row holds only what most steps change or lists select by. It must stay small: every step rewrites it.
CREATE TABLE sessions (
    no            INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    workspace     TEXT    NOT NULL,
    head          INTEGER NOT NULL,
    status        TEXT    NOT NULL,
    wake          INTEGER,
    node          TEXT    NOT NULL DEFAULT '',
    epoch         INTEGER NOT NULL DEFAULT 0,
    created       INTEGER NOT NULL,
    archived      INTEGER,
    agent         TEXT    NOT NULL,
    agent_version INTEGER NOT NULL,
    environment   TEXT    NOT NULL,
    deployment    TEXT    NOT NULL
) STRICT;

CREATE INDEX sessions_by_workspace ON sessions (workspace, id);
CREATE INDEX sessions_by_wake ON sessions (wake) WHERE wake IS NOT NULL;

-- Folds are large and change seldom, so they do not live in the row that changes with each step.
CREATE TABLE folds (
    session INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    kind    INTEGER NOT NULL, -- 1 configuration, 2 state
    seq     INTEGER NOT NULL,
    body    BLOB,
    UNIQUE (session, kind)
) STRICT;

-- The log. Rows are appended at the end of the table whichever session they belong to, so that sessions which are
-- committed together share pages; the one index that each row enters has entries of some twenty bytes. Measured with
-- steps of four entries of 1 KiB in 64 sessions: 7.5 kB of write-ahead log for a step in a group commit of 64, and 28 kB
-- alone; a table clustered by session wrote 14 to 18 kB and 31 to 39 kB. The file holds 1.36 bytes for each of a payload.
CREATE TABLE events (
    no      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (no) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    tag     INTEGER NOT NULL, -- 32 bits of a hash of id
    at      INTEGER NOT NULL,
    waited  INTEGER NOT NULL, -- 0 the only entry with its id, 1 an input that waits or waited, 2 its delivery
    id      TEXT    NOT NULL,
    thread  TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    body    BLOB,             -- NULL: the entry is not public
    private BLOB
) STRICT;

-- The tag rides in the index of positions: an event is found by its id by reading this index alone, from the newest
-- entry back (some 20 bytes an entry), and no second index has to be written with every step.
CREATE UNIQUE INDEX events_by_position ON events (session, seq, tag);
CREATE INDEX events_that_waited ON events (session, id) WHERE waited > 0;

CREATE TABLE documents (
    no        INTEGER PRIMARY KEY,
    workspace TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    archived  INTEGER,
    scope     TEXT    NOT NULL,
    content   TEXT    NOT NULL,
    body      BLOB    NOT NULL,
    UNIQUE (workspace, kind, id)
) STRICT;

CREATE INDEX documents_by_scope ON documents (workspace, kind, scope, id) WHERE scope <> '';
CREATE INDEX documents_by_content ON documents (content) WHERE content <> '';

CREATE TABLE versions (
    no        INTEGER PRIMARY KEY,
    workspace TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    created   INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    UNIQUE (workspace, kind, id, version)
) STRICT;

CREATE TABLE answers (
    no          INTEGER PRIMARY KEY,
    workspace   TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    status      INTEGER NOT NULL,
    body        BLOB,
    at          INTEGER NOT NULL,
    session     TEXT    NOT NULL,
    UNIQUE (workspace, key)
) STRICT;

CREATE INDEX answers_by_time ON answers (at);
CREATE INDEX answers_by_session ON answers (workspace, session) WHERE session <> '';

-- One row that a health check writes, to prove that a commit still reaches the disk.
CREATE TABLE probe (
    no INTEGER PRIMARY KEY CHECK (no = 1),
    at INTEGER NOT NULL
) STRICT;
