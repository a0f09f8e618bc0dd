use super::*;

const HOLD: Duration = Duration::from_secs(5);
const HOLD_US: u64 = 5_000_000;

fn cache() -> Arc<PlanCache> {
    PlanCaches::default().cache(&"plans".into(), AlgorithmKind::TokenBucket)
}

fn learn(cache: &PlanCache, field: &str, text: Option<&str>, at_us: u64) {
    let text = text.map(|text| text.as_bytes().to_vec());
    cache.learn(std::iter::once((Key::from(field), text)), at_us);
}

/// The burst of the plan, and whether its reading is due, and urgent.
fn find(cache: &Arc<PlanCache>, field: &str, now_us: u64) -> (Option<u64>, Option<bool>) {
    let (plan, lookup) = cache.find(Key::from(field), HOLD, now_us);
    (
        plan.map(|plan| plan.compiled().burst()),
        lookup.map(|lookup| lookup.urgent),
    )
}

#[test]
fn a_plan_is_used_then_read_again_meanwhile_then_waited_for() {
    let cache = cache();
    assert_eq!(find(&cache, "a", 0), (None, Some(true)), "never seen");
    learn(&cache, "a", Some("7/s"), 1_000);
    assert_eq!(find(&cache, "a", 1_000 + HOLD_US), (Some(7), None));
    assert_eq!(find(&cache, "a", 1_001 + HOLD_US), (Some(7), Some(false)));
    assert_eq!(
        find(&cache, "a", 1_002 + HOLD_US),
        (Some(7), None),
        "one reads it for all"
    );
    assert_eq!(
        find(&cache, "a", 1_002 + HOLD_US + micros(RETRY)),
        (Some(7), Some(false)),
        "and that came to nothing"
    );
    assert_eq!(
        find(&cache, "a", 1_000 + MAX_AGE * HOLD_US),
        (Some(7), Some(false)),
        "the last moment of its use"
    );
    assert_eq!(
        find(&cache, "a", 1_001 + MAX_AGE * HOLD_US),
        (Some(7), Some(true)),
        "too old to go on with"
    );
    learn(&cache, "a", None, 2_000 + MAX_AGE * HOLD_US);
    assert_eq!(
        find(&cache, "a", 2_000 + MAX_AGE * HOLD_US),
        (None, None),
        "having none is known as well"
    );
}

#[test]
fn a_plan_that_is_kept_for_a_moment_only_is_read_again_after_that_moment() {
    let cache = cache();
    let hold = Duration::from_millis(100);
    learn(&cache, "a", Some("7/s"), 1_000);
    let due = |now_us| cache.find(Key::from("a"), hold, now_us).1.is_some();
    assert_eq!(
        (due(101_000), due(101_001), due(101_002)),
        (false, true, false)
    );
}

#[test]
fn a_text_that_is_no_plan_is_as_good_as_none_and_its_reason_is_known() {
    let cache = cache();
    learn(&cache, "a", Some("lots"), 1_000);
    assert_eq!(find(&cache, "a", 1_000), (None, None));
    let reading = cache.reading(&Key::from("a"), 3_000);
    assert_eq!(
        reading,
        Some(PlanReading {
            content: FieldContent::Invalid(PlanError::Rate),
            age_us: 2_000
        })
    );
}

#[test]
fn an_invalid_plan_is_logged_once_and_not_too_often() {
    let cache = cache();
    let logged = |field: &str| {
        cache.known.with(&Key::from(field), |found| {
            matches!(
                found.unwrap().content,
                CachedContent::Invalid { logged: true, .. }
            )
        })
    };
    learn(&cache, "a", Some("lots"), 1);
    learn(&cache, "b", Some("lots"), 2);
    assert_eq!((logged("a"), logged("b")), (true, false));
    learn(&cache, "a", Some("lots"), 3_000_000);
    assert_eq!(cache.logged_us.load(Ordering::Relaxed), 1, "not again");
    learn(&cache, "b", Some("lots"), 3_000_000);
    assert!(logged("b"), "its turn comes");
    learn(&cache, "a", Some("7/s burst=0"), 6_000_000);
    assert_eq!(
        cache.logged_us.load(Ordering::Relaxed),
        6_000_000,
        "it is invalid for another reason"
    );
}

#[test]
fn an_unreadable_hash_is_logged_in_its_turn_and_no_request_waits_for_it() {
    let cache = cache();
    learn(&cache, "a", Some("lots"), 1);
    cache.fail(&StoreError::Auth, 1, 2);
    let logged = || cache.unreadable_logged.load(Ordering::Relaxed);
    assert_eq!(
        (cache.is_readable(), logged()),
        (false, false),
        "a line was just written"
    );
    cache.fail(&StoreError::Auth, 1, 2_000_000);
    assert!(logged());
    learn(&cache, "a", Some("7/s"), 2_000_001);
    assert_eq!((cache.is_readable(), logged()), (true, false));
}

#[test]
fn one_hash_has_one_cache_as_long_as_someone_needs_it() {
    let caches = PlanCaches::default();
    let one = caches.cache(&"plans".into(), AlgorithmKind::TokenBucket);
    learn(&one, "a", Some("7/s"), 0);
    assert!(
        caches
            .cache(&"plans".into(), AlgorithmKind::TokenBucket)
            .plan(&Key::from("a"))
            .is_some()
    );
    assert!(
        caches
            .cache(&"others".into(), AlgorithmKind::TokenBucket)
            .plan(&Key::from("a"))
            .is_none()
    );
    drop(one);
    assert!(
        caches
            .cache(&"plans".into(), AlgorithmKind::TokenBucket)
            .plan(&Key::from("a"))
            .is_none()
    );
}

#[test]
fn each_manner_of_counting_has_its_own_plans_of_a_hash() {
    let caches = PlanCaches::default();
    let zone = |name: &str| AlgorithmKind::FixedWindow {
        zone: Some(name.into()),
    };
    let of = |algorithm| caches.cache(&"plans".into(), algorithm);
    let bucket = of(AlgorithmKind::TokenBucket);
    let berlin = of(zone("Europe/Berlin"));
    for cache in [&bucket, &berlin] {
        learn(cache, "a", Some("7/h burst=9"), 0);
    }
    assert_eq!(
        (find(&bucket, "a", 0).0, find(&berlin, "a", 0).0),
        (Some(9), None)
    );
    assert!(
        Arc::ptr_eq(&berlin, &of(zone("Europe/Berlin"))) && !Arc::ptr_eq(&berlin, &of(zone("UTC")))
    );
}

#[test]
fn made_up_values_take_bounded_room_and_displace_no_client_with_a_plan() {
    let cache = cache();
    let tenants = || (0..5_000).map(|n| format!("tenant-{n}"));
    tenants().for_each(|tenant| learn(&cache, &tenant, Some("7/s"), 0));
    for n in 0..400_000 {
        learn(&cache, &n.to_string(), None, 1_000 + n);
    }
    let kept = tenants()
        .filter(|tenant| cache.plan(&Key::from(tenant.as_str())).is_some())
        .count();
    assert_eq!(kept, 5_000);
    let made_up = (0..400_000)
        .filter(|n| cache.reading(&Key::from(&*n.to_string()), 0).is_some())
        .count();
    assert!(made_up + kept <= CAPACITY, "{made_up}");
    learn(&cache, "late", Some("7/s"), 1_000_000);
    assert!(
        cache.plan(&Key::from("late")).is_some(),
        "who gets a plan finds room"
    );
}
