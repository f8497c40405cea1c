//! Many pools: the page and `weir status` stay short, and show one where it is asked for.

use super::*;

const POOLS: usize = 40;

#[test]
fn many_pools_are_a_table_that_sorts_and_searches() {
    let address = free_address();
    let mut setup = own_php(1, &format!("admin_tcp = \"{address}\"\n"), "")
        .file("7.php", "<?php http_response_code(500);")
        .file("23.php", "<?php echo 'good';");
    for number in 0..POOLS {
        setup = setup.more(&format!(
            "[pool.customer{number}]\nruntime = \"php\"\npm = \"ondemand\"\nmax_children = 2\n{}\
             [[site.main.route]]\npath = \"/{number}.php\"\npool = \"customer{number}\"\n",
            php::identity()
        ));
    }
    let weir = setup.start();
    for _ in 0..4 {
        weir.get("/7.php").expect(500);
    }
    weir.get("/23.php").expect(200);

    let status = stdout(&ask(&weir, &["status"]));
    assert!(status.lines().count() < 60, "{status}");
    let words = text(&weir);
    assert!(words.contains("customer7 critical"), "{words}");
    assert!(
        words.contains("!! pool customer7: scripts answered only with errors"),
        "{words}"
    );
    let problem = &troubles(&weir)[0];
    assert_eq!(problem["level"], "critical", "{problem}");
    assert_eq!(problem["cost"], "site", "{problem}");

    let mut browser = Browser::open(weir.folder(), &format!("http://{address}/"));
    let rows = "document.querySelectorAll('#pools-body tr').length";
    let first = "document.querySelector('#pools-body th').textContent";
    browser.wait_until(&format!("{rows} === 25 && {first} === 'customer7'"));
    assert_eq!(
        browser.run("document.querySelectorAll('article.pool').length"),
        0
    );
    assert_eq!(
        browser.run("document.documentElement.scrollHeight < 3000"),
        true
    );
    // The problem leads to its pool.
    browser.run("document.querySelector('.trouble.critical a').click()");
    browser.wait_until(
        "document.querySelector('article.pool h2').textContent.startsWith('customer7 ')",
    );
    // By name, and back.
    browser.run("document.querySelector('#pools-head button[data-key=name]').click()");
    assert_eq!(browser.run(first), "app");
    browser.run("document.querySelector('#pools-head button[data-key=name]').click()");
    assert_eq!(browser.run(first), "customer39");
    browser.run("document.getElementById('pools-more').click()");
    assert_eq!(browser.run(rows), POOLS + 1);
    browser.run(
        "const search = document.getElementById('pools-search'); search.value = 'R23'; \
         search.dispatchEvent(new Event('input', { bubbles: true }))",
    );
    assert_eq!(browser.run(rows), 1);
    // The chosen rows stay chosen while the page updates.
    browser.run("window.was = document.getElementById('facts').textContent");
    browser.wait_until("document.getElementById('facts').textContent !== was");
    assert_eq!(browser.run(first), "customer23");
}
