-- A rule goes with any VM that it names.
CREATE TABLE firewall_rules (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  id             TEXT NOT NULL UNIQUE,
  source_vm      TEXT REFERENCES vms (id) ON DELETE CASCADE,
  destination_vm TEXT REFERENCES vms (id) ON DELETE CASCADE,
  source         TEXT NOT NULL CHECK (json_valid(source)),
  destination    TEXT NOT NULL CHECK (json_valid(destination)),
  description    TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX firewall_rules_newest ON firewall_rules (created_at DESC, seq DESC);
CREATE INDEX firewall_rules_source ON firewall_rules (source_vm);
CREATE INDEX firewall_rules_destination ON firewall_rules (destination_vm);

-- door is the port on which the Internet reaches the domain, NULL if it does not.
CREATE TABLE tls_rules (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  id             TEXT NOT NULL UNIQUE,
  domain         TEXT NOT NULL,
  protocol       TEXT NOT NULL,
  door           INTEGER,
  source_vm      TEXT REFERENCES vms (id) ON DELETE CASCADE,
  destination_vm TEXT REFERENCES vms (id) ON DELETE CASCADE,
  source         TEXT NOT NULL CHECK (json_valid(source)),
  destination    TEXT NOT NULL CHECK (json_valid(destination)),
  transform      TEXT NOT NULL CHECK (json_valid(transform)),
  match          TEXT NOT NULL CHECK (json_valid(match)),
  description    TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX tls_rules_door ON tls_rules (domain, door);
CREATE INDEX tls_rules_newest ON tls_rules (created_at DESC, seq DESC);
CREATE INDEX tls_rules_source ON tls_rules (source_vm);
CREATE INDEX tls_rules_destination ON tls_rules (destination_vm);
