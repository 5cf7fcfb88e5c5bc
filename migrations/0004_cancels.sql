-- Why a study was cancelled, from the moment the cancel was accepted; a daemon that finds such a
-- study unfinished ends it. NULL: nobody cancelled it.
ALTER TABLE studies ADD COLUMN cancel_reason TEXT;
