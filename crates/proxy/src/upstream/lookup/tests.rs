use std::sync::mpsc;

use tokio::runtime::Handle;

use super::*;

/// A resolver that answers what the test sends it, and how often it was asked. All its threads have
/// the time of the test.
fn scripted() -> (
    Arc<Resolver>,
    mpsc::Sender<io::Result<Vec<SocketAddr>>>,
    Arc<AtomicUsize>,
) {
    let (answers, script) = mpsc::channel();
    let (script, asked) = (Mutex::new(script), Arc::new(AtomicUsize::new(0)));
    let (count, test) = (Arc::clone(&asked), Handle::current());
    let look_up = move |_: &str, _| {
        count.fetch_add(1, Ordering::SeqCst);
        script
            .lock()
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    };
    let now = move || {
        let _entered = test.enter();
        clock::now()
    };
    (Resolver::new(look_up, now), answers, asked)
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 80))
}

/// Waits until no lookup is under way.
async fn settled(name: &ResolvedName) {
    while name.answer.lock().looking_up_since.is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn all_who_wait_for_a_name_share_one_lookup() {
    let (resolver, answers, asked) = scripted();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let name = resolver.name("Orders", 80);
            tokio::spawn(async move { name.addresses().await })
        })
        .collect();
    while asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    answers.send(Ok(vec![address(1)])).unwrap();
    for waiting in waiting {
        assert_eq!(*waiting.await.unwrap().unwrap(), [address(1)]);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_while_it_is_fresh_and_the_last_good_one_while_the_resolver_fails() {
    let (resolver, answers, asked) = scripted();
    let name = resolver.name("orders", 80);
    answers.send(Ok(vec![address(1)])).unwrap();
    for _ in 0..3 {
        assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    // It hangs: the second lookup is not waited for, and no third one starts.
    tokio::time::advance(FRESH).await;
    for _ in 0..3 {
        assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
        tokio::time::advance(FRESH).await;
    }
    assert_eq!(name.resolver.under_way.load(Ordering::SeqCst), 1);
    answers.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
    settled(&name).await;
    assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
    // Not tried again before its time, and then at once.
    tokio::time::advance(RETRY_AFTER - Duration::from_micros(1)).await;
    assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    tokio::time::advance(Duration::from_micros(1)).await;
    answers.send(Ok(vec![address(2)])).unwrap();
    assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
    settled(&name).await;
    assert_eq!(*name.addresses().await.unwrap(), [address(2)]);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_is_waited_for_only_where_the_known_answer_is_old() {
    let (resolver, answers, asked) = scripted();
    let name = resolver.name("orders", 80);
    answers.send(Ok(vec![address(1)])).unwrap();
    name.addresses().await.unwrap();
    // Stale: it is used at once, and the next one is looked up meanwhile.
    tokio::time::advance(FRESH).await;
    let begun = clock::now();
    assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
    answers.send(Ok(vec![address(2)])).unwrap();
    settled(&name).await;
    assert_eq!(*name.addresses().await.unwrap(), [address(2)]);
    assert_eq!(
        (clock::now() - begun, asked.load(Ordering::SeqCst)),
        (Duration::ZERO, 2)
    );
    // Old: it is used once the lookup has taken too long.
    tokio::time::advance(FRESH + STALE).await;
    let begun = clock::now();
    assert_eq!(*name.addresses().await.unwrap(), [address(2)]);
    assert_eq!(clock::now() - begun, SLOW);
    answers.send(Ok(vec![address(3)])).unwrap();
    settled(&name).await;
    assert_eq!(*name.addresses().await.unwrap(), [address(3)]);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_is_waited_for_where_the_known_answer_is_old_also_after_one_that_failed() {
    let (resolver, answers, _) = scripted();
    let name = resolver.name("orders", 80);
    answers.send(Ok(vec![address(1)])).unwrap();
    name.addresses().await.unwrap();
    tokio::time::advance(FRESH + STALE).await;
    answers.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
    // The lookup ends before the time of the test moves on, which it does where nothing else is to
    // be done.
    let mut waiting = Box::pin(name.addresses());
    let _ = futures_util::poll!(&mut waiting);
    settled(&name).await;
    assert_eq!(*waiting.await.unwrap(), [address(1)]);
    // The next one hangs.
    tokio::time::advance(RETRY_AFTER).await;
    let begun = clock::now();
    assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
    assert_eq!(clock::now() - begun, SLOW);
}

#[tokio::test]
async fn a_resolver_that_hangs_holds_a_bounded_number_of_threads() {
    let (resolver, answers, asked) = scripted();
    let names: Vec<_> = (0..MOST_UNDER_WAY + 5)
        .map(|n| resolver.name(&format!("n{n}"), 80))
        .collect();
    for name in &names {
        for _ in 0..3 {
            let mut waiting = Box::pin(name.addresses());
            let _ = futures_util::poll!(&mut waiting);
        }
    }
    assert_eq!(resolver.under_way.load(Ordering::SeqCst), MOST_UNDER_WAY);
    let refused = names[MOST_UNDER_WAY]
        .addresses()
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("too many lookups"), "{refused}");
    drop(answers);
    while resolver.under_way.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), MOST_UNDER_WAY);
}

#[tokio::test]
async fn an_address_that_no_server_can_have_is_no_answer() {
    let (resolver, answers, _) = scripted();
    let name = resolver.name("orders", 80);
    let hostile = ["[::ffff:0.0.0.0]:80", "0.0.0.0:80", "[ff02::1]:80"];
    let mut found: Vec<_> = hostile.iter().map(|text| text.parse().unwrap()).collect();
    found.push("[::ffff:10.0.0.1]:80".parse().unwrap());
    answers.send(Ok(found)).unwrap();
    assert_eq!(*name.addresses().await.unwrap(), [address(1)]);
}
