CREATE TABLE vms (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  id             TEXT NOT NULL UNIQUE,
  slug           TEXT UNIQUE CHECK (slug <> ''),
  display_name   TEXT NOT NULL,
  state          TEXT NOT NULL CHECK (state IN ('starting', 'running', 'pausing', 'paused', 'stopped')),
  state_reason   TEXT NOT NULL,
  cpu            INTEGER NOT NULL,
  memory_mib     INTEGER NOT NULL,
  storage_mib    INTEGER NOT NULL,
  snapshot_id    TEXT NOT NULL,
  snapshot_slug  TEXT NOT NULL,
  image          TEXT NOT NULL,
  parent_id      TEXT NOT NULL,
  ancestry       TEXT NOT NULL CHECK (json_valid(ancestry)),
  forked_at      INTEGER,
  generation     INTEGER NOT NULL,
  run_time       INTEGER NOT NULL,
  running_since  INTEGER,
  metadata       TEXT NOT NULL CHECK (json_valid(metadata)),
  agent_version  TEXT NOT NULL,
  search         TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX vms_newest ON vms (created_at DESC, seq DESC);
CREATE INDEX vms_snapshot ON vms (snapshot_id);

CREATE TABLE snapshots (
  seq                    INTEGER PRIMARY KEY AUTOINCREMENT,
  id                     TEXT NOT NULL UNIQUE,
  slug                   TEXT UNIQUE CHECK (slug <> ''),
  display_name           TEXT NOT NULL,
  source_vm_id           TEXT NOT NULL,
  source_vm_slug         TEXT NOT NULL,
  source_vm_display_name TEXT NOT NULL,
  public                 INTEGER NOT NULL CHECK (public IN (0, 1)),
  cpu                    INTEGER NOT NULL,
  memory_mib             INTEGER NOT NULL,
  storage_mib            INTEGER NOT NULL,
  image                  TEXT NOT NULL,
  durable                INTEGER NOT NULL CHECK (durable IN (0, 1)),
  ancestry               TEXT NOT NULL CHECK (json_valid(ancestry)),
  bytes                  INTEGER NOT NULL,
  last_used_at           INTEGER,
  search                 TEXT NOT NULL,
  created_at             INTEGER NOT NULL,
  updated_at             INTEGER NOT NULL
) STRICT;

CREATE INDEX snapshots_newest ON snapshots (created_at DESC, seq DESC);
CREATE INDEX snapshots_source ON snapshots (source_vm_id);

CREATE TABLE intents (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  kind       TEXT NOT NULL,
  vm_id      TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
