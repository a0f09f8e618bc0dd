//! The audit log: appended to by many at once, changed by nobody, and found out where somebody did.

use tollgate_policies::database::Page;
use tollgate_policies::people::{AuditOutcome, AuditRecord, AuditVerdict};

use super::people;
use crate::servers::{Product, TestDatabase};

over_all! {
    entries_are_chained_however_many_write_at_once,
    the_database_refuses_to_change_the_log,
    whatever_is_changed_behind_its_back_is_found,
}

fn record(object: &str) -> AuditRecord {
    AuditRecord {
        account: "ada".into(),
        action: "commit".into(),
        object: object.into(),
        address: "10.0.0.1".into(),
        outcome: AuditOutcome::Done,
        detail: String::new(),
    }
}

async fn entries_are_chained_however_many_write_at_once(test: TestDatabase) {
    let people = people(&test).await;
    assert_eq!(
        people.verify_audit().await.unwrap(),
        AuditVerdict::Intact {
            entries: 0,
            hash: "0".into()
        }
    );
    let writers = (0..6).map(|writer| {
        let people = test.handle().people();
        tokio::spawn(async move {
            for round in 0..4 {
                people
                    .record(&record(&format!("{writer}.{round}")))
                    .await
                    .unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let hostile = AuditRecord {
        object: "a\0b\n\u{1f600}".into(),
        detail: "ä".repeat(5000),
        outcome: AuditOutcome::Refused,
        ..record("")
    };
    let last = people.record(&hostile).await.unwrap();
    assert_eq!(
        (last.number, last.record.object.as_str()),
        (25, "a\u{fffd}b\u{fffd}\u{1f600}")
    );
    assert_eq!(last.record.detail.len(), 4096);
    let entries = people
        .audit(Page {
            before: None,
            limit: 500,
        })
        .await
        .unwrap();
    assert_eq!(entries[0], last);
    let numbers: Vec<_> = entries.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, (1..=25).rev().collect::<Vec<_>>());
    assert!(
        entries
            .windows(2)
            .all(|pair| pair[0].previous == pair[1].hash)
    );
    let page = people
        .audit(Page {
            before: Some(3),
            limit: 9,
        })
        .await
        .unwrap();
    assert_eq!(page, entries[23..]);
    assert_eq!(
        people.verify_audit().await.unwrap(),
        AuditVerdict::Intact {
            entries: 25,
            hash: last.hash
        }
    );
}

async fn the_database_refuses_to_change_the_log(test: TestDatabase) {
    let people = people(&test).await;
    for object in ["a", "b"] {
        people.record(&record(object)).await.unwrap();
    }
    let mut forbidden = vec![
        "UPDATE tollgate_audit SET account = 'eve'",
        "DELETE FROM tollgate_audit WHERE number = 2",
    ];
    let columns =
        "number, made_at, account, action, object, address, outcome, detail, previous, hash";
    let again = format!(
        "INTO tollgate_audit ({columns}) SELECT {columns} FROM tollgate_audit WHERE number = 1"
    );
    let replace = format!("REPLACE {again}");
    let upsert = format!("INSERT {again} ON CONFLICT (number) DO UPDATE SET account = 'eve'");
    match test.product {
        Product::Postgres => forbidden.extend(["TRUNCATE tollgate_audit", upsert.as_str()]),
        Product::Sqlite | Product::MariaDb => forbidden.push(&replace),
    }
    for sql in forbidden {
        let refused = test.try_run(sql).await.unwrap_err().to_string();
        assert!(
            refused.contains("the audit log is append-only"),
            "{sql}: {refused}"
        );
    }
    assert!(matches!(
        people.verify_audit().await.unwrap(),
        AuditVerdict::Intact { entries: 2, .. }
    ));
}

async fn whatever_is_changed_behind_its_back_is_found(test: TestDatabase) {
    let columns = "made_at, account, action, object, address, outcome, detail, previous, hash";
    let swap = format!(
        "INSERT INTO tollgate_audit (number, {columns}) SELECT 99, {columns} FROM tollgate_audit WHERE number = 2; \
         DELETE FROM tollgate_audit WHERE number = 2; \
         UPDATE tollgate_audit SET number = 2 WHERE number = 3; UPDATE tollgate_audit SET number = 3 WHERE number = 99"
    );
    let forged = format!(
        "INSERT INTO tollgate_audit (number, {columns}) SELECT 77, {columns} FROM tollgate_audit WHERE number = 2"
    );
    let cases = [
        (
            forged.as_str(),
            77,
            "the log has not come to it: it was added by other means",
        ),
        (
            "UPDATE tollgate_audit SET account = 'eve' WHERE number = 2",
            2,
            "it is not what was written",
        ),
        (
            "UPDATE tollgate_audit SET made_at = made_at + 1 WHERE number = 1",
            1,
            "it is not what was written",
        ),
        (
            "UPDATE tollgate_audit SET outcome = 'refused' WHERE number = 3",
            3,
            "it is not what was written",
        ),
        (
            "DELETE FROM tollgate_audit WHERE number = 2",
            2,
            "it is missing",
        ),
        (
            "DELETE FROM tollgate_audit WHERE number = 4",
            4,
            "it is missing",
        ),
        ("DELETE FROM tollgate_audit", 1, "it is missing"),
        (swap.as_str(), 2, "it does not follow the entry before"),
        (
            "DELETE FROM tollgate_audit WHERE number = 4; UPDATE tollgate_heads SET number = 3 WHERE name = 'audit'",
            3,
            "the log has noted another hash for it",
        ),
    ];
    for (sql, number, what) in cases {
        let test = TestDatabase::new(test.product).await;
        let people = people(&test).await;
        for object in ["a", "b", "c", "d"] {
            people.record(&record(object)).await.unwrap();
        }
        let unlock = match test.product {
            Product::Postgres => "ALTER TABLE tollgate_audit DISABLE TRIGGER ALL",
            _ => "DROP TRIGGER tollgate_audit_update; DROP TRIGGER tollgate_audit_delete",
        };
        test.run(unlock).await;
        test.run(sql).await;
        assert!(
            people
                .audit(Page::default())
                .await
                .unwrap()
                .iter()
                .all(|entry| entry.number <= 4),
            "{sql}"
        );
        let found = people.verify_audit().await.unwrap();
        assert_eq!(
            found,
            AuditVerdict::Damaged {
                number,
                what: what.into()
            },
            "{sql}"
        );
    }
}
