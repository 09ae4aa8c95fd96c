package sqlite

// Every statement on tenant data names the workspace, or a row number that was found by one which does.

const (
	sqlBegin      = `BEGIN IMMEDIATE`
	sqlBeginRead  = `BEGIN`
	sqlCommit     = `COMMIT`
	sqlRollback   = `ROLLBACK`
	sqlSavepoint  = `SAVEPOINT member`
	sqlRollbackTo = `ROLLBACK TO member`
	sqlRelease    = `RELEASE member`

	sqlMakeMigrations = `CREATE TABLE IF NOT EXISTS migrations (
		version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT`
	sqlMigrations   = `SELECT version, checksum FROM migrations`
	sqlAddMigration = `INSERT INTO migrations (version, name, checksum) VALUES (?, ?, ?)`

	sqlForgetNodes = `DELETE FROM nodes`
	sqlJoin        = `INSERT INTO nodes (node, expires) VALUES (?, ?) ON CONFLICT (node) DO UPDATE SET expires = excluded.expires`
	sqlRenew       = `UPDATE nodes SET expires = ? WHERE node = ? AND expires > ?`
	sqlLeave       = `DELETE FROM nodes WHERE node = ?`
	sqlAlive       = `SELECT count(*) FROM nodes WHERE node = ? AND expires > ?`
	sqlLease       = `SELECT no, workspace, node, epoch FROM sessions WHERE id = ?`
	sqlTakeLease   = `UPDATE sessions SET node = ?, epoch = ? WHERE no = ?`
	sqlDue         = `SELECT id, workspace, wake FROM sessions WHERE wake <= ? ORDER BY wake, no LIMIT ?`
	sqlNextWake    = `SELECT min(wake) FROM sessions WHERE wake > ?`

	sqlAddWorkspace  = `INSERT INTO workspaces (id, name) VALUES (?, ?) ON CONFLICT DO NOTHING`
	sqlWorkspaces    = `SELECT id FROM workspaces ORDER BY no`
	sqlHasWorkspace  = `SELECT count(*) FROM workspaces WHERE id = ?`
	sqlAddKey        = `INSERT INTO keys (id, workspace, name, hint, hash, created, revoked) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	sqlKeys          = `SELECT id, workspace, name, hint, hash, created, revoked FROM keys ORDER BY id`
	sqlKeyByHash     = `SELECT id, workspace, name, hint, hash, created, revoked FROM keys WHERE hash = ?`
	sqlRevokeKey     = `UPDATE keys SET revoked = coalesce(revoked, ?) WHERE id = ?`
	sqlForgetAnswers = `DELETE FROM answers WHERE at < ?`
	sqlProbe         = `INSERT INTO probe (no, at) VALUES (1, ?) ON CONFLICT (no) DO UPDATE SET at = excluded.at`

	sqlDocument    = `SELECT id, body, created, archived, scope, content FROM documents WHERE workspace = ? AND kind = ? AND id = ?`
	sqlDocuments   = `SELECT id, body, created, archived, scope, content FROM documents WHERE workspace = ? AND kind = ?`
	sqlPutDocument = `INSERT INTO documents (workspace, kind, id, body, created, archived, scope, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (workspace, kind, id) DO UPDATE SET
			body = excluded.body, created = excluded.created, archived = excluded.archived, scope = excluded.scope,
			content = excluded.content`
	sqlContentUsed    = `SELECT EXISTS (SELECT 1 FROM documents WHERE content = ? AND content <> '')`
	sqlDeleteDocument = `DELETE FROM documents WHERE workspace = ? AND kind = ? AND id = ?`
	sqlDeleteVersions = `DELETE FROM versions WHERE workspace = ? AND kind = ? AND id = ?`
	sqlDeleteScope    = `DELETE FROM documents WHERE workspace = ? AND kind = ? AND scope = ? AND scope <> ''`
	sqlDeleteAnswers  = `DELETE FROM answers WHERE workspace = ? AND session = ? AND session <> ''`
	sqlVersion        = `SELECT id, version, body, created FROM versions WHERE workspace = ? AND kind = ? AND id = ? AND version = ?`
	sqlVersions       = `SELECT id, version, body, created FROM versions WHERE workspace = ? AND kind = ? AND id = ?`
	sqlAddVersion     = `INSERT INTO versions (workspace, kind, id, version, body, created) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

	sqlAnswer    = `SELECT fingerprint, status, body, at FROM answers WHERE workspace = ? AND key = ?`
	sqlAddAnswer = `INSERT INTO answers (workspace, key, fingerprint, status, body, at, session) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

	sqlSessionColumns = `SELECT s.id, s.agent, s.agent_version, s.environment, s.deployment, s.status, s.created, s.archived,
		s.head, s.wake, c.body, c.seq, f.body, f.seq
		FROM sessions s
		LEFT JOIN folds c ON c.session = s.no AND c.kind = 1
		LEFT JOIN folds f ON f.session = s.no AND f.kind = 2`
	sqlSession  = sqlSessionColumns + ` WHERE s.workspace = ? AND s.id = ?`
	sqlSessions = sqlSessionColumns + ` WHERE s.workspace = ?`

	sqlAddSession = `INSERT INTO sessions
		(id, workspace, head, status, wake, created, archived, agent, agent_version, environment, deployment)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING no`
	sqlPosition       = `SELECT no, head, status, wake, node, epoch FROM sessions WHERE workspace = ? AND id = ?`
	sqlMoveHead       = `UPDATE sessions SET head = ? WHERE no = ?`
	sqlMoveAll        = `UPDATE sessions SET head = ?, status = ?, wake = ? WHERE no = ?`
	sqlArchiveSession = `UPDATE sessions SET archived = ? WHERE no = ?`
	sqlPutFold        = `INSERT INTO folds (session, kind, seq, body) VALUES (?, ?, ?, ?)
		ON CONFLICT (session, kind) DO UPDATE SET seq = excluded.seq, body = excluded.body`
	sqlDeleteSession = `DELETE FROM sessions WHERE workspace = ? AND id = ?`

	// An entry is the delivery of an input that waited if an entry with its id did wait.
	sqlAddEvent = `INSERT INTO events (session, seq, tag, at, waited, id, thread, type, body, private)
		VALUES (?1, ?2, ?3, ?4,
			CASE WHEN ?5 THEN 1
			     WHEN EXISTS (SELECT 1 FROM events INDEXED BY events_that_waited WHERE session = ?1 AND id = ?6 AND waited > 0) THEN 2
			     ELSE 0 END,
			?6, ?7, ?8, ?9, ?10)`
	sqlEventColumns = `SELECT e.seq, e.id, e.thread, e.type, e.at, e.waited = 1, e.body, e.private FROM events e
		WHERE e.session = (SELECT no FROM sessions WHERE workspace = ? AND id = ?)`
	// The tag is compared in the index; only entries that pass it are read.
	sqlEvent       = sqlEventColumns + ` AND e.tag = ? AND e.id = ? ORDER BY e.seq DESC LIMIT 1`
	sqlPublicEvent = `e.body IS NOT NULL AND (e.waited <> 1 OR NOT EXISTS (
		SELECT 1 FROM events later INDEXED BY events_that_waited WHERE later.session = e.session AND later.id = e.id AND later.waited > 0 AND later.seq > e.seq))`
)

// The kinds of folds.
const (
	foldConfig = 1
	foldState  = 2
)
