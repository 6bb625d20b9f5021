"""A file of the writer that tables had before: it is in them for as long as nobody rewrites it."""

import base64

from support.tables.foreign import Lake, expected

from lakestream.model import DataFile
from lakestream.table.parquet.seal import sealed_name

OFFSETS = (0, 1, 2, 3, 7, 9, 10)
FOOTER = 0x16E6F535
DATA = (
    b"P(e~L6#x|!6($v(`k3qs92E!^3Ka$w1^@skwJ-f33Q+(6fB^&q00000000#L6%-XF72UU*zyur>2o(wy1{DSX04TLD{U8ca004ji1OxyA00000"
    b"6#x}56+#uogVXN{92E!^3Ka$w1^@skwJ-f37{LGl0ssI22mycr1O$M9@_~big$A%~000006#x|!6($v(`k3qs92E!^3Ka$w1^@skwJ-f33Q+(6"
    b"fB^&q00000000#L6&w{V74wwNp8^~e2o(wy1{DSX04TLD{U8o;004ji1Oxy80RR911ONa46#x|^6*d)-sEpVS92E!^02Kxm1^@skwJ-f35|ID^"
    b"0ssI20|o*B003(-0ssI2Ycdr86)+V-6_E10>;)VZ3Kakq1{DSX04TLD{U8{@00062000951ONa410(<d0RR91XaN8K0B#ik6($up6`YCP*a{pK"
    b"3Kakq1{DSX04TLD{U8&W00062000951ONa40~`PV0RR91b`<~>3>6*~`j_I?2pkm%6#x|m6$StRD77#BAO<l200IC200;mT02Q186-*WUkAj{K"
    b"92E!^02Kxm1^@skwJ-f3PVE2yhynlr00RdU0000mEifQ1F){=IU=~nsCl+*|4ix|u78NKJg!{I&3mg>)6$%vw6$StRD77#BAPZRl00IC200;np"
    b"0R#X56#x|=6(AMOm9@(P92E!^02Kxm1^@sC3flm+AZMv1ld}19sfX4T02LG!CKdkw-pLFc6$TXw6$TXs001bpFa012Q2+pd0R#g80000002Kfg"
    b"92G7V`{J4M2OJd!6$%vw6$StRD77#BAP#W=0Du7m0}cWK000010000L02P=46;u__xcamL92Eu?3Ka$w1^@skwJ-f3Obr15*a83m00seo0R#ik"
    b"{r7=`iG>ERZ4Ceb09YFU0RS6;F%<w66cr{F{{P;|3>*~(6$%vw6$StRD77#BAPP|c0Du7m0{{R30000L02LG!CKdkw-pLFc6$TXw6$TXs001bp"
    b"Fa012Q2+pd0R#g80000002KfgCKWgp*N2?Z2OJd!6#x|m6$StRD77#BAQPDY00IC200RXA0001MHv<3w0BbQY6#x}56+#u`kDH_j92E!^02Kxm"
    b"1^@skwJ-f37{LGl0ssI20|*2F000932><~A003wK0001P6#x|`6*v|Ci2INY92E!^02Kxm1^@skwJ-f36PW-20ssI20|*2F000932LJ&8004Fs"
    b"02K@s9u=A1guw(H6$TXm6$TXs001bpFa00}F#rGp0000602KfgoB<V36~Wes+5;RF1{DAm1{DSX04TLD{UA>L005W*000060TciL05B~#ATBvE"
    b"Fdzf~pc_zcCl+*|4ix|u78NKJzLw3l0UQ+u6$%vw6$StRD77#BAPZRl00IC200sbn0R#X56#x|&6&Mw-!t?t992Eu?02Kxm1^@t+N6ZL+4W30^"
    b"AWvQu1R4AgNCtCbXk~3-6&3&$0wn+#5npq3a%Ev{UvOb^bZK;HZ*Elr02Kr!02l{fZ)Rq5Wpq^p02Kr!0vHNkbZKp6b97;Ca3vHq1{{nL94r6;"
    b"0000L0wn+#4_|a?ZDn(GVQp|<ba`-PRR{nT0wn+#1z&4vZe&#o02K@+0vH5eYh`&=3;;C(7zkfzWnpAxa&r{|6$Uj996SI305t>{1Z-(@bQJ;s"
    b"H3Aq1Wo%__Wo~p81Vs=46$~W;7z1l%c_jcf5*!==000#XB?1@)c42IFWmOaa6$~W;7z|%%WnpAxa&upDVRuy)02K@+0vHBgc42IFWmOme6#^v!"
    b"7z$r=V`yb<VP9!vRT=;l0wn+#1YcuvV^tgg77iIK8O$aK92Ei?B?<-^7!hA{baG{3ZC`L<a&&2QX>V>73>F9$LKaje2s}0bC<Fii000;S00000"
    b"02v$=02K-q0ssI2CR`j91Q{g?1{oL!UvFk+b7gcD3>F9$LKajeTs$@aC<p@p00000000;W000000000002v$=02K-q0ssI2Ca?h<6$BY23I-V%"
    b"3SV?-ZDn(GVQp{~3>F9$UKVgBumL<a04N9uk{%c&3I+fe2mnAH7$gb?000>r6#x|q6#@VN04AUU92Ei?B?<-^7!O}`X>Db5bYX39UvznJWfcq-"
    b"2o^#XR3@MTJT?F*1ONa402l-S0000085|V=6$%vs0000c^a30e0vRO=1{oLyUu$V@WEBh+2o_2fTqg7aNgNdb6$%vs0000c&;uM53>hT=1{oLx"
    b"Uu$J~6$};#7E%^uCeQ;sHUuaFYcd!DYcT*B92Ec+02KlN001Vm1RNC%86^M)8Au3UXk}q!WpZ-_Y-w|J2W4z!ZDnqB18Ze@6$};%7G4%`CbR@R"
    b"HU=mGZWsY*02v$=02Kfg0ssI2CZq)%6$}|A00tRI2w!MrVPs`;a|CQ@b94t~Y-Md_Zgd59VQh6}6$};%7E~5yCZq*P92Ec+02KlN001V61{@U("
    b"86^M)85j&-Xk}q!WpZ<0a$$EB3>F9$Iu=YOiUvG32ml!z6#x|g6#@VN04CN392E>1B>)B)7zST<VQh6}6$};#7R&(_d?wZgNgNdb6#x|i0000c"
    b"(gz$B0vRO=1{oL%Uvpz<Wo=<!X=D`)76=wZ7FH(G2T2?i02K-q0ssI2Ca4G;6#^M000tQt1YcuvV-)}v2o_EjP9~@bNgNdb6#x|i0000MiU<}6"
    b"CI}Yp2ml$(CiVy%6#^M03I-V%5npq3a%Ev{UvOb^bZK;HZ*CO~76ukV7E~to2s}0bC<Fii000;S0000002v$=02K-q0ssI2CdvsM6$BY23I-V%"
    b"2VZYyW^-k96$};z7D^UeCdvssHUKCH3IG5A000007zhUd000000000P92Ec+3KaqX001VY3LF&#86^q^85jy*bZKp6b97;Ca1{&|1{TNx7K8yN"
    b"rV2bZ04NA>Q6Cs23I+fe2x$Kv7$gb?000>r6#x|q6#@VN04Ayn92Ei?B?<-^7!O}`X>Db5bYX39UvznJWfcq-1{OjVR3@qmJT?F*1ONa402l-S"
    b"0000085|V=6$%vs0000c{tFxx0vRO=1{oLyUu$V@WEBh+1{OjVR3`olNgNdb6$%vs0000c(hM9G3>hT=1{oLxUu$J~6$};z7E~5yCejQ%HUcOD"
    b"Yd07JYcVhY85|V=6#x|i0000cxD6Z?3>hT=1{p{QUub1vWMy)51Z-(@bO&W@Wo>0{bOUQ;c@+#62o_!za3;77JT?R<0d5!pXaE@;6#x|g6#@VN"
    b"04Aso92E>1B>)B)NC;nOWnpAxa&rW1X>)W3Wo%__Wo~o@c42IFWfcq-2o_WpW+tc(NgNdb6#x|i0000cjt?9a3>hT=1{oL(Uub1vWMy)5Uvgo0"
    b"6$};z7CIJ8CXNq0HU<D092Ec+02KlN001W14;&Q?86^M)85jm%c42IFWfcq-1{TZ#7JvaJ+7C$_6#x|g6#@VN04CZH92Ei?B?<-^7z$r=V`yb<"
    b"VP9!v6$};z7DN_SCfX2592Ec+3KaqX001Vi5gZi)86^M)85jg#V{&5^02T%oMixdUun|cd6#x|g6#@VN02b~D76vBv2o`_|02v$@5o}>=Wpi|L"
    b"WnpbDV`z15YjYUK0b_DwGcsd3V=^-^H90dlWimH5Vl+8qWo0;KVK6XbV=^-^H90dlV>C86Win=EIb=0BIbvckGG#L{Vq`dBI5#w6I59XdFgZ6h"
    b"IWc2qFk?7nH)durV`VllW@R@vI5;>qH)LgFIWaP1H#ImlWiT>kVq;@DWo9`uH(_NmIWaP1H#ImlIWaP1H#ImlFkvxbI50RkIbk?9I59UkI5%Q7"
    b"H#lQuWinznVqrC7WHvEoW;J3mWHMnmGGj0>Ff%nZH8wFh02ml-VQXb`baG{3Z6J1Ka&u{KZXhu(FfK3|%p3p!8~^|u000~S02}}S8~^|u000~S"
    b"02}}S8~^|u000~S005f@002-yQZW"
)
"""`lake.table` of the offsets below 4, then of the others."""


async def test_it_is_served() -> None:
    lake = Lake()
    data = base64.b85decode(DATA)
    key = sealed_name("tables/t/_data/packed.parquet", FOOTER)
    await lake.store.put(key, [data])
    lake.files.append(DataFile(f"{lake.store.url}/{key}", len(OFFSETS), len(data), 0, 0, 0, 10, None))
    assert await lake.replay(0, 11) == [expected(offset) for offset in OFFSETS]
