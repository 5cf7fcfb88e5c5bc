-- Devices that jobs hold. `ends_boot_us` counts from the boot that `boot_id` names; NULL: no end.

CREATE TABLE leases (
  job_id TEXT PRIMARY KEY,
  uid INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  ends_boot_us INTEGER
) WITHOUT ROWID;

CREATE TABLE lease_devices (
  job_id TEXT NOT NULL REFERENCES leases (job_id) ON DELETE CASCADE,
  device TEXT NOT NULL,
  PRIMARY KEY (job_id, device)
) WITHOUT ROWID;

-- What the used memory of a GPU has to come back to after a probe, of the boot that `boot_id`
-- names; `dirty`: why no probe starts on it, empty for a clean one.
CREATE TABLE gpu_baselines (
  device TEXT PRIMARY KEY,
  boot_id TEXT NOT NULL,
  used_bytes INTEGER NOT NULL,
  dirty TEXT NOT NULL
) WITHOUT ROWID;
