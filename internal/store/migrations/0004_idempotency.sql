CREATE TABLE idempotency_keys (
  owner        TEXT NOT NULL,
  key          TEXT NOT NULL,
  fingerprint  TEXT NOT NULL,
  seed         TEXT NOT NULL,
  status       INTEGER,
  header       TEXT NOT NULL CHECK (json_valid(header)),
  body         BLOB,
  request_id   TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
