/* B holds the only unit and may cancel its order. A asks, and asks again with the same key: the retry may hear 409
   while the first attempt is still open and may yet win. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_A
#define RETRY_OF_FIRST
#define B_HAS_THE_UNIT
#define CANCEL_B
#define CANCEL_ONLY_ORDERS
#include "../dropgate.pml"
