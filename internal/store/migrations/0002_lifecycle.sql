-- Timers are in seconds; NULL is none.
ALTER TABLE vms ADD COLUMN idle_timeout INTEGER;
ALTER TABLE vms ADD COLUMN auto_delete INTEGER;
ALTER TABLE vms ADD COLUMN ttl INTEGER;
ALTER TABLE vms ADD COLUMN max_run INTEGER;
ALTER TABLE vms ADD COLUMN max_run_total INTEGER;
ALTER TABLE vms ADD COLUMN resting_since INTEGER;
ALTER TABLE vms ADD COLUMN used_at INTEGER;
ALTER TABLE vms ADD COLUMN automatic_restart INTEGER NOT NULL DEFAULT 1 CHECK (automatic_restart IN (0, 1));
ALTER TABLE vms ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE vms ADD COLUMN restart_at INTEGER;
ALTER TABLE vms ADD COLUMN placement TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(placement));

UPDATE vms SET resting_since = updated_at WHERE state IN ('paused', 'stopped');

ALTER TABLE snapshots ADD COLUMN auto_delete INTEGER;
ALTER TABLE snapshots ADD COLUMN ttl INTEGER;
